"""The comparison of text by the name of a database. Run by centers only."""

from __future__ import annotations

from skep.store.sql.engine.dialects.registry import dialect_named
from skep.store.sql.engine.text_matching import Expression, TextMatching, Truth

__all__ = ["Expression", "TextMatching", "Truth", "text_matching"]


def text_matching(engine: str) -> TextMatching:
    """For the engine of this name, as `Dialect.name` has it."""
    return dialect_named(engine).text
