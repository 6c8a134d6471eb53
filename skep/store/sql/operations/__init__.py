"""Bulk operations: their rows, what filters find, and acts on requests."""
