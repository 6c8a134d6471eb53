"""Endpoints of users, sessions, saved views and the audit log. Run by centers."""
