"""The survive bench: a crawl whose processes are killed again and again."""
