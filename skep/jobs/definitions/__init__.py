"""Job documents: reading, checks, storage. Used by centers, and by `skep job lint` in part."""
