"""Commands of the group People: users, groups of users, the audit log."""
