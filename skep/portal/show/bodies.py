"""Archived answers for people: their sort, their text, and a form of a page that loads nothing.

Pure. The text is decoded for display only. What keeps a page harmless is the policy that
it is sent with; that nothing is left to load here saves the browser from trying.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from html import escape
from html.parser import HTMLParser

from skep.wire.api.requests import ArchivedHead

_CHARSET = re.compile(r"charset\s*=\s*[\"']?([A-Za-z0-9._:-]{1,40})", re.IGNORECASE)
#: Bytes of a page in which it may name its encoding.
_META = 2048
#: Elements that show text and load nothing. Others are left out, their text is kept.
_SHOWN = """a abbr address article aside b bdi bdo blockquote body br caption center cite code col
colgroup dd del details dfn div dl dt em figcaption figure footer h1 h2 h3 h4 h5 h6 head header
hgroup hr html i ins kbd li main mark nav ol p pre q rp rt ruby s samp section small span strong
sub summary sup table tbody td tfoot th thead time title tr tt u ul var wbr"""
_KEPT = frozenset(_SHOWN.split())
#: Elements that are left out with their content.
_HIDDEN = "script style template noscript svg math object iframe noembed"
_DROPPED = frozenset(_HIDDEN.split())
_VOID = frozenset({"br", "hr", "wbr", "col"})
_ATTRIBUTES = frozenset({"title", "lang", "dir", "colspan", "rowspan", "alt", "open", "start"})


@dataclass(frozen=True, slots=True)
class ContentType:
    """The type of an answer as its header names it, and the encoding; "" = not named."""

    name: str
    charset: str

    @property
    def is_page(self) -> bool:
        return self.name in {"text/html", "application/xhtml+xml"}


def content_type_of(head: ArchivedHead) -> ContentType:
    values = [one.value for one in head.headers if one.name.lower() == "content-type"]
    value = values[-1] if values else ""
    found = _CHARSET.search(value)
    return ContentType(value.partition(";")[0].strip().lower(), found[1] if found else "")


@dataclass(frozen=True, slots=True)
class Body:
    """The first bytes of a body; `size` is that of all, None = not known."""

    content: bytes
    size: int | None
    cut: bool

    @property
    def is_text(self) -> bool:
        return b"\0" not in self.content[:_META]

    def text(self, kind: ContentType) -> str:
        """Decoded as the answer says, or as UTF-8; what cannot be decoded is marked."""
        return self.content.decode(self._charset(kind), "replace")

    def _charset(self, kind: ContentType) -> str:
        named = kind.charset
        if not named and kind.is_page:
            inside = _CHARSET.search(self.content[:_META].decode("latin-1"))
            named = inside[1] if inside else ""
        try:
            found = codecs.lookup(named or "utf-8")
        except LookupError:
            return "utf-8"
        return found.name if found._is_text_encoding else "utf-8"  # noqa: SLF001


class _Rewriter(HTMLParser):
    """Writes the page again with known elements and attributes only."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _DROPPED:
            self._inside.append(tag)
        elif not self._inside and tag in _KEPT:
            self.parts.append(f"<{tag}{_attributes(attrs)}>")
        elif not self._inside and tag == "img":
            self._alternative(dict(attrs).get("alt") or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _DROPPED:
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if self._inside:
            if tag == self._inside[-1]:
                self._inside.pop()
        elif tag in _KEPT and tag not in _VOID:
            self.parts.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.parts.append(escape(data))

    def _alternative(self, text: str) -> None:
        if text:
            self.parts.append(f"[{escape(text)}]")


def _attributes(attrs: list[tuple[str, str | None]]) -> str:
    kept = [(name, value or "") for name, value in attrs if name in _ATTRIBUTES]
    return "".join(f' {name}="{escape(value)}"' for name, value in kept)


def without_loads(text: str) -> str:
    """The page without anything that runs, loads, or leads elsewhere."""
    rewriter = _Rewriter()
    rewriter.feed(text)
    rewriter.close()
    return "<!doctype html>" + "".join(rewriter.parts)
