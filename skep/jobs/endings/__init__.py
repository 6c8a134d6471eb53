"""Work after the end of a run: notices and retention. Centers only."""
