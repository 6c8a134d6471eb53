"""Explains why something does not run: what it waits for and what ends the wait. Centers only.

Each module explains one kind of thing, from facts alone; `explainer` collects the facts.
"""
