"""The command line: people start here. One file for each command, loaded when it runs."""
