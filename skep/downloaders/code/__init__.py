"""The kinds `python` and `shell`: user code in sandboxed child processes of an agent.

User code must never run in the agent's own process.
"""
