"""Users, groups, sessions, login links and the audit log in SQL. Run by centers only."""
