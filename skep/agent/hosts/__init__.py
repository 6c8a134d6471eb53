"""Hosts on an agent: robots.txt, rate limits, notes for reports."""
