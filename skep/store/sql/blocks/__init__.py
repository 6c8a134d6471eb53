"""Blocks in SQL: packing, leasing, renewing, settling, reclaiming."""
