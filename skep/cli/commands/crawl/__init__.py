"""`skep up`, `demo`, `run`, `submit`, `fetch`, and the code they share."""
