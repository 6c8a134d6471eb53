"""`kill`: repeated kill -9 during the work, and a count of what was lost."""
