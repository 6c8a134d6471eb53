"""Handlers of logs, figures over time, alerts, failure groups and live updates."""
