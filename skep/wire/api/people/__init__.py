"""Users, sessions, saved views and the audit log: types and routes."""
