"""Archived bodies: append-only `.warc.zst` segments, one zstd frame per record.

Agents create frames (`frames`). Centers append and read them (`folder`, based on `segments`),
opened by URL (`registry`). `frame_boundaries` finds the ends of frames.
"""
