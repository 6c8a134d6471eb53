"""Who may do what: users, sessions, API tokens, scopes, and the audit log.

Run by centers. Passwords and tokens are stored as digests only and never appear in a log.
"""
