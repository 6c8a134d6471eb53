"""Nouns of access: users, groups, sessions, scopes, audit rows. Pure data."""
