"""Ground floor: clock, ids, backoff, logging, metrics. It knows no product word."""
