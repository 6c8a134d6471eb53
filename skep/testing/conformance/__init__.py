"""One suite per contract. Each backend runs it on the real thing, by a subclass.

They ship with the package, so that a backend of yours can run them too.
"""
