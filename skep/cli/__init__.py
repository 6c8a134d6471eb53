"""The command line. Each command has one file, which is imported when the command runs.

Commands call a center over its public HTTP API; no command opens a store.
"""
