"""The kinds `python` and `shell`: user code in warm, boxed child processes of an agent.

An agent's process must never run a line of it.
"""
