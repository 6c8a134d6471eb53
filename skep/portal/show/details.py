"""Parts of a detail page: tabs, figures, and nested settings as flat pairs. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from skep.portal.show.names import held

#: Pairs of one page; more are cut.
PAIRS_LIMIT = 500


@dataclass(frozen=True, slots=True)
class Tab:
    """`key` is its text; the open one is marked."""

    key: str
    path: str
    is_open: bool
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """A figure or a setting with its name. `key` is a key of the catalogue, or `name` a name of
    the API that is shown as it is."""

    key: str
    value: str
    name: str = ""
    attention: bool = False
    href: str = ""


def pairs_of(value: Any, name: str = "") -> list[Pair]:
    """A nested value as pairs such as `placement.n`, in its order."""
    return _flat(value, name)[:PAIRS_LIMIT]


def _flat(value: Any, name: str) -> list[Pair]:
    if isinstance(value, dict) and value:
        return [
            pair
            for key, one in value.items()
            for pair in _flat(one, f"{name}.{key}" if name else str(key))
        ]
    return [Pair("", _text(value), name)]


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return held(", ".join(_text(one) for one in value))
    if isinstance(value, dict):
        return ""
    return held(str(value))
