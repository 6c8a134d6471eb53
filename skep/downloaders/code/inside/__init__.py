"""The program inside the sandbox, next to user code: it imports nothing else of Skep.

In every case the agent reads one checked message for each request.
"""
