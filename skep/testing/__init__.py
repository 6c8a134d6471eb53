"""Test tools of Skep, shipped so that your own tests can use them too.

`servers` starts private databases, `clock` is a manual clock, `site` is a small web site to
download from. `fleet` combines centers and agents; `faultproxy`, `killer`, `skew`, `namespaces` and
`small_disk` cause faults, and `figures` reports measurements. No production code imports this
package, except for `skep demo`. Skep's own tests use the sub-packages `doubles`, `grounds`,
`faults` and `simulation`.
"""
