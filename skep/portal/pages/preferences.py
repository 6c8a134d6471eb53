"""The switches for language and theme: forms that set a cookie."""

from __future__ import annotations

from skep.portal.page import Outcome, Page, PageCall, Redirect
from skep.portal.preferences import LANGUAGE_COOKIE, LANGUAGES, THEME_COOKIE, THEMES
from skep.portal.safe_paths import safe_path

_YEAR = 365 * 86_400


async def switch(call: PageCall) -> Outcome:
    """Keep the chosen word; an unknown one changes nothing."""
    back, headers = safe_path(call.field("next")), {}
    if (language := call.field("language")) in LANGUAGES:
        headers = {"set-cookie": _cookie(call, LANGUAGE_COOKIE, language)}
    elif (theme := call.field("theme")) in THEMES:
        headers = {"set-cookie": _cookie(call, THEME_COOKIE, theme)}
    return Redirect(back, headers)


def _cookie(call: PageCall, name: str, value: str) -> str:
    path = call.request.scope.get("root_path", "") or "/"
    return f"{name}={value}; Path={path}; Max-Age={_YEAR}; SameSite=Lax"


PAGES = (Page("preferences", "/preferences", switch, method="POST", public=True),)
