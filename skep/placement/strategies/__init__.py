"""Placement strategies, one file for each. Centers only.

A strategy chooses agents for a run and says who takes each of its requests. Its traits are in
`skep/model/fleet/strategy_traits.py`; nothing outside its file compares its name.
"""
