"""Kinds of generator and their traits: what the rest of Skep decides by. Pure data.

How each kind is read is in `skep/jobs/generators`.
"""

from __future__ import annotations

import msgspec

from skep.model.user_code import Language


class GeneratorKind(msgspec.Struct, frozen=True):
    """What a kind of generator needs and does. Its name is what jobs say."""

    name: str
    #: Fields of the generator that must be given.
    needs: tuple[str, ...]
    #: A person wrote its URIs. Code, queries and sitemaps may hand on those of others.
    written: bool = False
    #: It runs code of the job, in this language.
    language: Language | None = None
    #: Agents fetch what it reads, in a run of its own; it continues where it stopped.
    fetched: bool = False
    #: It asks a database.
    queries: bool = False


LIST = GeneratorKind("list", ("uris",), written=True)
FILE = GeneratorKind("file", ("path",), written=True)
PYTHON = GeneratorKind("python", ("code",), language=Language.PYTHON)
SHELL = GeneratorKind("shell", ("code",), language=Language.SHELL)
SITEMAP = GeneratorKind("sitemap", ("url",), fetched=True)
SQL = GeneratorKind("sql", ("url", "query"), queries=True)

BUILT_IN = (LIST, FILE, PYTHON, SHELL, SITEMAP, SQL)
_BUILT_IN = {kind.name: kind for kind in BUILT_IN}


def generator_kind(name: str) -> GeneratorKind:
    """The traits of a kind; a document with another kind is refused before."""
    return _BUILT_IN[name]
