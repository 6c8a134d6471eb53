"""Nouns of figures over time, alerts, failure groups and run summaries. Pure data."""
