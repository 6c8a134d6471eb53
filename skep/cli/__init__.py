"""The command line: people start here. One file for each command, loaded when it runs.

Commands that ask speak to a center over HTTP, as anybody could; none of them opens a store.
"""
