"""Messages between centers and agents, their encoding, and the typed client."""
