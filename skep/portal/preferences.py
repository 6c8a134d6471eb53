"""What a browser prefers: language and theme, kept in cookies. Pure.

The switches are forms, so they work without scripts. A cookie holds one known word; anything
else is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LANGUAGES = {"en": "English", "zh": "中文"}
THEMES = ("auto", "light", "dark")
LANGUAGE_COOKIE, THEME_COOKIE = "skep_language", "skep_theme"


@dataclass(frozen=True, slots=True)
class Preferences:
    """The language and the theme of one call."""

    language: str = "en"
    theme: str = "auto"

    @classmethod
    def of(cls, cookies: Mapping[str, str], accepts: str) -> Preferences:
        """From the cookies, then from the Accept-Language header."""
        language = cookies.get(LANGUAGE_COOKIE, "")
        theme = cookies.get(THEME_COOKIE, "")
        return cls(
            language if language in LANGUAGES else accepted_language(accepts),
            theme if theme in THEMES else "auto",
        )


def accepted_language(header: str) -> str:
    """The language with the highest weight that there is; English if there is none."""
    weighed: list[tuple[float, int, str]] = []
    for place, part in enumerate(header[:1000].split(",")):
        name, _, weight = part.partition(";q=")
        language = name.strip().lower().partition("-")[0]
        if language in LANGUAGES:
            weighed.append((-_number(weight), place, language))
    return min(weighed)[2] if weighed else "en"


def _number(text: str) -> float:
    try:
        return float(text) if text else 1.0
    except ValueError:
        return 0.0
