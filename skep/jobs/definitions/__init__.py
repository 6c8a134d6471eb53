"""Job documents: read, checked, kept. Centers, and `skep job lint` with less to compare against."""
