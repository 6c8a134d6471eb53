"""What came back: bytes to the archive, facts to the store. Centers only.

Store, archive, clock and randomness are arguments; it imports nothing of `lanes`.
"""
