"""Hosts in SQL: rules, rate limits, which block holds which host."""
