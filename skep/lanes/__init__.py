"""In which order: packing, dispatch, leases. Run by centers only.

Everything here takes store, bus, clock and randomness as arguments, so that a seeded
simulation can drive it through crashes that no test bench could time.
"""
