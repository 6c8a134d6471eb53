"""Bulk operations: one act on everything that a filter matches.

Run by centers. An operation is a row; centers process it in batches under a lease, so a killed
center neither loses nor repeats work. Acts are registered; this room knows none of them by name.
"""
