"""Figures over time, alert rules and states, failure groups, run summaries. Centers only."""
