"""The message pool in SQL."""
