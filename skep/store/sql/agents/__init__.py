"""Agents in SQL: heartbeats, sessions, commands, allocations."""
