"""Records around the work in SQL: alerts, tokens, notices, deliveries, retention."""
