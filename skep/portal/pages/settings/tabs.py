"""What the pages of the settings share: their tabs, and the page that shows a secret once."""

from __future__ import annotations

from skep.portal.page import PageCall, View
from skep.portal.show.details import Tab
from skep.portal.show.times import Moment

ROLES = ("viewer", "operator", "admin")
_PATHS = {
    "users": "/settings",
    "groups": "/settings/groups",
    "tokens": "/settings/tokens",
    "hosts": "/settings/hosts",
    "notices": "/settings/notices",
    "retention": "/settings/retention",
}


def tabs_of(open_tab: str) -> list[Tab]:
    return [Tab(f"settings.tab_{name}", path, name == open_tab) for name, path in _PATHS.items()]


def shown_once(call: PageCall, key: str, secret: str, back: str, until: Moment | None) -> View:
    """The answer to the form itself: the secret is in no URL, cookie or list."""
    data = {"heading": f"settings.{key}", "secret": secret, "back": back, "until": until}
    return View("pages/settings_secret.html", data, title=call.texts.plain(f"settings.{key}"))
