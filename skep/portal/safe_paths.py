"""Paths to go to after a login or an act: only ones of this portal. Pure."""

from __future__ import annotations

HOME = "/overview"
_LONGEST = 4000


def safe_path(text: str, default: str = HOME) -> str:
    """The path when it is one of this origin, else the default: no other host, no scheme, nothing
    that a browser reads as one."""
    if not text.startswith("/") or len(text) > _LONGEST:
        return default
    if text.startswith(("//", "/\\")) or "\\" in text:
        return default
    if any(ord(letter) <= 0x20 or ord(letter) == 0x7F for letter in text):  # noqa: PLR2004
        return default
    return text
