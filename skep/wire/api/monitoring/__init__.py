"""Logs, figures over time, alerts, failure groups and live updates: types and routes."""
