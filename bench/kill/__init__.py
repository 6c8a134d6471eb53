"""`kill`: kill -9 in the middle of the work, again and again, and count what was lost."""
