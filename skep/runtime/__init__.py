"""Ground floor: clock, ids, backoff, logging, metrics. It knows no product word.

Every process stands on it, and it imports nothing else of Skep.
"""
