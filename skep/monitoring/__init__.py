"""Figures over time, alert rules over them, and failure groups.

Run by centers. Series and rows are bounded; no call adds up request rows.
"""
