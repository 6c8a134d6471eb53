"""Pages for the people who operate a center: logs, alerts, operations."""
