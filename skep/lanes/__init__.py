"""The order of work: packing, dispatch, leases. Run by centers only.

Everything here takes store, bus, clock and randomness as arguments, so that a seeded simulation
can test crashes at any point in time.
"""
