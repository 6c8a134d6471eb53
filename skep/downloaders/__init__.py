"""Bytes from the world. Runs on agents only; one downloader per run.

Nothing here knows of centers or leases: a request goes in, an outcome with its frames comes
out, whatever happens.
"""
