"""One suite per contract. Each backend runs it on the real thing, by a subclass."""
