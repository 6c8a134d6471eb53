"""The texts of the portal: one folder per language, one file per page. Loaded once.

`texts("jobs.title")` is the key `title` of `jobs.toml`. A text with a plural is a table of `one`
and `other`, chosen by the argument `n`. A key that is missing is an error in tests, and shows
itself as the key in a running center.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from markupsafe import Markup, escape

from skep.portal.preferences import LANGUAGES

Entry = str | dict[str, str]


class Texts:
    """All texts of one language."""

    def __init__(self, language: str, entries: Mapping[str, Entry]) -> None:
        self.language = language
        self._entries = entries

    def __call__(self, key: str, **values: Any) -> Markup:
        """The text, safe for HTML: the values are escaped."""
        return Markup(escape(self._chosen(key, values))).format(**_shown(values))  # noqa: S704

    def plain(self, key: str, **values: Any) -> str:
        """The text for JSON, titles and headers."""
        return self._chosen(key, values).format(**_shown(values))

    def has(self, key: str) -> bool:
        return key in self._entries

    def part(self, name: str) -> dict[str, Entry]:
        """All texts of one file, by key."""
        start = f"{name}."
        return {
            key.removeprefix(start): entry
            for key, entry in self._entries.items()
            if key.startswith(start)
        }

    def _chosen(self, key: str, values: Mapping[str, Any]) -> str:
        entry = self._entries.get(key, key)
        if isinstance(entry, str):
            return entry
        form = "one" if values.get("n") == 1 else "other"
        return entry.get(form, entry["other"])


def _shown(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: f"{one:,}" if type(one) is int else one for name, one in values.items()}


@cache
def texts_of(language: str) -> Texts:
    """The catalogue of a language."""
    return Texts(language, entries_of(language))


def entries_of(language: str) -> dict[str, Entry]:
    """Every entry of a language, by `file.key`."""
    if language not in LANGUAGES:
        raise ValueError(f"no texts for {language!r}")
    found: dict[str, Entry] = {}
    for path in sorted(files(__name__).joinpath(language).iterdir(), key=lambda one: one.name):
        if path.name.endswith(".toml"):
            name = path.name.removesuffix(".toml")
            table = tomllib.loads(path.read_text("utf-8"))
            found |= {f"{name}.{key}": entry for key, entry in table.items()}
    return found
