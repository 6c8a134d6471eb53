"""Reads logfmt: `level=info msg="a b" retry`. Pure; one pass over the text, whatever it contains.

A name without a value is true. Values are texts.
"""

from __future__ import annotations

import re

_NAME = re.compile(r'[^\s="]+')
_BARE = re.compile(r'[^\s"]*')
_SPACE = re.compile(r"\s*")
#: A backslash takes the next character with it, so the end of a quoted value is found in one pass.
_INSIDE = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r"}


def parse_logfmt(text: str) -> dict[str, str | bool]:
    """The pairs of a line, a later one with the same name wins; raises ValueError."""
    found: dict[str, str | bool] = {}
    place = _skip(text, 0)
    while place < len(text):
        name = _NAME.match(text, place)
        if name is None:
            raise ValueError(f"no name at character {place + 1}")
        place = name.end()
        found[name[0]] = True
        if text.startswith("=", place):
            found[name[0]], place = _value(text, place + 1)
        place = _skip(text, place)
    if not found:
        raise ValueError("no pairs")
    return found


def _skip(text: str, place: int) -> int:
    match = _SPACE.match(text, place)
    return match.end() if match else place


def _value(text: str, place: int) -> tuple[str, int]:
    if not text.startswith('"', place):
        match = _BARE.match(text, place)
        return (match[0], match.end()) if match else ("", place)
    inside = _INSIDE.match(text, place + 1)
    if inside is None or not text.startswith('"', inside.end()):
        raise ValueError(f"the quote at character {place + 1} has no end")
    return _ESCAPED.sub(_unescaped, inside[0]), inside.end() + 1


def _unescaped(match: re.Match[str]) -> str:
    return _LETTERS.get(match[1], match[1])
