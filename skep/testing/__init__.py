"""What tests of Skep stand on, shipped so that your own tests can use it too.

`servers` starts private databases, `clock` moves time by hand, `site` is a small web site
to download from. Nothing that runs in production imports this room, but `skep demo`.
"""
