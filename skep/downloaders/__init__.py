"""Bytes from the world. Runs on agents only; one downloader per run."""
