"""One parse of a page by lexbor, for what Skep itself looks for: title, base, links.

Runs in the spider's process. Selectors of users go through parsel, which they know; this
is several times cheaper and is all that a crawl of links needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from selectolax.lexbor import LexborHTMLParser, LexborNode


class Document:
    """A parsed page."""

    __slots__ = ("_tree",)

    def __init__(self, html: bytes | str) -> None:
        self._tree = LexborHTMLParser(html)

    def title(self) -> str:
        """The text of `<title>` with single spaces; "" when there is none."""
        found = self._tree.tags("title")
        return " ".join(found[0].text().split()) if found else ""

    def base(self) -> str:
        """Where `<base>` says that links start; "" when it says nothing."""
        for node in self._tree.tags("base"):
            if href := node.attributes.get("href"):
                return href
        return ""

    def values(self, tags: Sequence[str], attributes: Sequence[str], within: str) -> Iterator[str]:
        """Every value of one of the attributes on one of the tags, in the page's order."""
        for node in self._nodes(tags, within):
            found = node.attributes
            for name in attributes:
                if value := found.get(name):
                    yield value

    def _nodes(self, tags: Sequence[str], within: str) -> list[LexborNode]:
        if not within and len(tags) == 1:
            return self._tree.tags(tags[0])
        parts = within.split(",") if within else [""]
        return self._tree.css(",".join(f"{part} {tag}" for part in parts for tag in tags))
