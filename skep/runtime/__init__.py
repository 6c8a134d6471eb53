"""The base of every process: clock, ids, backoff, retries, logging, masking, small files.

It contains no product terms and imports nothing else of Skep.
"""
