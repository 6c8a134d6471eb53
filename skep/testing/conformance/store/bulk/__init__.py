"""Promises about bulk operations and about what filters find."""
