"""Downloaders: execute the requests of a run. Run on agents only; one downloader per run.

They know nothing of centers or leases: every request ends with an outcome and, where bytes were
received, with WARC frames.
"""
