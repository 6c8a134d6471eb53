"""Log lines: their format, the disk buffer of agents, pieces and search of centers, and export.

`logs.agent` and `logs.center` are the two sides; agents import only the first.
"""
