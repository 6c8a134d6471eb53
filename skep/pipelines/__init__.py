"""Pipelines: documents, expressions, and the engine that turns messages into outcomes."""
