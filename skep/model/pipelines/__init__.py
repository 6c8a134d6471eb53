"""Pipelines as shared nouns: the document."""
