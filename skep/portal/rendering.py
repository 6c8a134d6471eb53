"""Renders a view in the frame: side bar, header, texts, switches. Calls nothing but templates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from skep import __version__
from skep.portal.assets_table import package_assets
from skep.portal.page import Page, PageCall, View

#: Order of the groups in the side bar; the first has no heading.
GROUPS = ("", "work", "products", "fleet", "operate")
#: The texts that modules show.
SCRIPT_TEXTS = "script"


@dataclass(frozen=True, slots=True)
class Link:
    """One line of the side bar."""

    name: str
    path: str
    key: str


class Links:
    """Paths of the portal as links: below the prefix of the proxy."""

    def __init__(self, call: PageCall) -> None:
        self._root = str(call.request.scope.get("root_path", ""))
        base = call.request.base_url
        #: The address of the center as the browser knows it.
        self.address = f"{base.scheme}://{base.netloc}{self._root}"

    def __call__(self, path: str) -> str:
        return f"{self._root}{path}"

    def to(self, *parts: str) -> str:
        """A path from parts that may hold anything."""
        return f"{self._root}/{'/'.join(quote(part, safe='') for part in parts)}"

    @staticmethod
    def part(text: str) -> str:
        return quote(text, safe="")


def nav_of(pages: Sequence[Page]) -> list[tuple[str, list[Link]]]:
    """The side bar: groups with their pages."""
    found = []
    for group in GROUPS:
        placed = [page for page in pages if page.nav is not None and page.nav.group == group]
        placed.sort(key=lambda page: (page.nav.order if page.nav else 0, page.name))
        lines = [Link(one.name, one.path, one.nav.key if one.nav else "") for one in placed]
        if lines:
            found.append((group, lines))
    return found


def render(view: View, page: Page, call: PageCall, pages: Sequence[Page], notice: str) -> str:
    """The whole page as HTML."""
    from skep.portal.environment import environment  # the engine is loaded with the first page

    template = environment().get_template(view.template)
    return template.render({**_frame(view, page, call, pages, notice), **view.data})


def _frame(
    view: View, page: Page, call: PageCall, pages: Sequence[Page], notice: str
) -> dict[str, Any]:
    texts, url, assets = call.texts, Links(call), package_assets()
    return {
        "t": texts,
        "url": url,
        "asset": lambda name: url(assets.path(name)),
        "asset_mark": assets.mark,
        "call": call,
        "me": call.me,
        "now": call.now,
        "range": call.range,
        "language": texts.language,
        "theme": call.preferences.theme,
        "page": page,
        "title": view.title or texts(f"{page.name}.title"),
        "under": page.under or page.name,
        "nav": nav_of(pages),
        "watch": view.watch,
        "every": view.every,
        "notice": notice,
        "version": __version__,
        "here": _here(call),
        "script_texts": texts.part(SCRIPT_TEXTS),
    }


def _here(call: PageCall) -> str:
    """The path of this page with its query, to come back to."""
    root = call.request.scope.get("root_path", "")
    path = call.request.url.path.removeprefix(root) or "/"
    return f"{path}?{call.request.url.query}" if call.request.url.query else path
