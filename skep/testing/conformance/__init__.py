"""One test suite per contract. Each backend runs it against a real server, in a subclass.

They ship with the package, so that your own backend can run them too.
"""
