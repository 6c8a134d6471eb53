"""`skep up`, `demo`, `run`, `submit`, `fetch`, and what they share."""
