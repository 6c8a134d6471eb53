"""Stores results: bytes in the archive, facts in the store. Centers only.

Store, archive, clock and randomness are arguments; it imports nothing of `lanes`.
"""
