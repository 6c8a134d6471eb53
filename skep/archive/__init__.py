"""Bodies: append-only `.warc.zst` segments, one zstd frame per record.

Agents make frames (`frames`). Centers append and read them (`folder`, on top of
`segments`), opened by URL (`registry`). `walk` finds where frames end.
"""
