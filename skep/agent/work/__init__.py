"""Blocks on an agent: leasing, holding, downloading, reporting."""
