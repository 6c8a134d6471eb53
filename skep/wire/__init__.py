"""Messages between centers and agents, their encoding, and the typed client.

Both sides import it, so it knows neither. Fields are added with defaults, never removed.
"""
