"""The kinds `python` and `shell`: user code in warm, boxed child processes of an agent."""
