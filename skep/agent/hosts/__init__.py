"""Hosts on an agent: robots.txt, rate limits, what reports say about them."""
