"""Shared by all commands: options, output, progress, exit codes, calls to the center."""
