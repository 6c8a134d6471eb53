"""The command line: one file per command. A file is imported when its command runs.

Commands call a center over its public HTTP API; they do not open its store.
"""
