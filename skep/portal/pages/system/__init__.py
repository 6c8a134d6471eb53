"""The system: readiness, versions, self-check, storage, backup, and the audit log."""
