"""The lowest layer: clock, ids, back-off, retries, files, logging, masking of secrets.

Every process uses it. It contains no product concept and imports nothing else of Skep.
"""
