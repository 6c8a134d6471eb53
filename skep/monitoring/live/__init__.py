"""Live updates: one reader for each watched list or object, shared by all streams that watch it."""
