"""The benchmark `survive`: a crawl whose processes are killed repeatedly."""
