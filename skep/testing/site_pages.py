"""The content of the demo site: pages made from a seed.

Pure; `site` serves them. A page is a slice of one long text, so that making it takes microseconds
and a site of a million pages needs no memory.
"""

from __future__ import annotations

from html import escape
from random import Random

PAGE_BYTES = 10_000
CHILDREN = 20
FRONT_LINKS = 21
SITEMAP_LIMIT = 50_000
TEXT_LENGTH = 60_000

SUBJECTS = "a bee|the skep|one hive|a keeper|the swarm|this orchard|a forager|the queen"
VERBS = "carries|gathers|counts|remembers|leaves|finds|shares|guards|follows|mends"
OBJECTS = "honey|clover|wax|the map|seven fields|a song|fresh straw|the ledger|linden bloom"
PLACES = "before noon|by the river|under the roof|after rain|at the gate|without haste|in May"


def make_text(rng: Random, length: int = TEXT_LENGTH) -> str:
    """Plain sentences, one per line, with at least `length` characters."""
    parts = [group.split("|") for group in (SUBJECTS, VERBS, OBJECTS, PLACES)]
    sentences: list[str] = []
    size = 0
    while size < length:
        sentence = " ".join(rng.choice(group) for group in parts).capitalize() + "."
        sentences.append(sentence)
        size += len(sentence) + 1
    return "\n".join(sentences)


class Pages:
    """Page N links to page N + 1 and to twenty more; page 0 leads to all of them."""

    def __init__(self, count: int, seed: int = 1) -> None:
        if count < 1:
            raise ValueError("a site needs at least one page")
        self.count = count
        self._text = make_text(Random(seed))  # noqa: S311 - prose, not a secret

    def links(self, number: int) -> list[int]:
        """The next page, then this one's children in a tree with twenty branches."""
        first = number * CHILDREN + 1
        targets = [number + 1, *range(first, first + CHILDREN)]
        return [target % self.count for target in targets]

    def front(self) -> str:
        """The page at `/`."""
        shown = range(min(FRONT_LINKS, self.count))
        return _document("Skep demo site", _link_list(shown), f"<p>{self.count} pages.</p>")

    def page(self, number: int) -> str:
        """About 10 KB of HTML, always the same for the same number."""
        links = _link_list(self.links(number))
        frame = len(_document(f"Page {number}", links, ""))
        return _document(f"Page {number}", links, self._paragraphs(number, PAGE_BYTES - frame))

    def sitemap(self, base: str) -> str:
        """The URLs of the pages, up to the limit of one sitemap."""
        shown = range(min(self.count, SITEMAP_LIMIT))
        urls = "".join(f"<url><loc>{escape(base)}/page/{n}</loc></url>\n" for n in shown)
        return (
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{urls}</urlset>\n'
        )

    def _paragraphs(self, number: int, size: int) -> str:
        # 7919 is prime: neighbouring pages start far from each other in the text.
        start = number * 7919 % (len(self._text) - size)
        return f"<p>{escape(self._text[start : start + size])}</p>"


def _link_list(numbers: list[int] | range) -> str:
    items = "".join(f'<li><a href="/page/{n}">Page {n}</a></li>\n' for n in numbers)
    return f"<ul>\n{items}</ul>\n"


def _document(title: str, links: str, text: str) -> str:
    return (
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{escape(title)}'
        f"</title></head>\n<body>\n<h1>{escape(title)}</h1>\n{links}{text}\n</body>\n</html>\n"
    )
