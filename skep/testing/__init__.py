"""What tests of Skep stand on, shipped so that your own tests can use it too.

`servers` starts private databases, `clock` moves time by hand, `site` is a small web site
to download from. `fleet` puts centers and agents together; `faultproxy`, `killer`, `skew`,
`namespaces` and `small_disk` break them, and `figures` tells what was measured. Nothing that
runs in production imports this room, but `skep demo`. The sub-packages `doubles`, `grounds`,
`faults` and `simulation` are what Skep's own tests are made of.
"""
