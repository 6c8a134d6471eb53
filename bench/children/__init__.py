"""Our own side of each measurement, in a process of its own; prints one line of JSON."""
