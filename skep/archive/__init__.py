"""Bodies: append-only `.warc.zst` segments, one zstd frame per record.

Agents make frames (`frames`), centers append and read them (`segments`).
"""
