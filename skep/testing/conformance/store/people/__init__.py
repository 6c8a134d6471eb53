"""What every store promises about users, sessions and the audit log."""
