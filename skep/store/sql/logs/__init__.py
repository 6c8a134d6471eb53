"""Log pieces in SQL. Run by centers only."""
