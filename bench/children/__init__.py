"""Our own side of each benchmark, in a separate process; prints one line of JSON."""
