"""Detects the charset of a page and decodes it. Pure.

The order is that of browsers: a byte order mark, the header, the charset named in the first
bytes of the page, UTF-8 if the bytes are valid, else windows-1252, which decodes any bytes.
"""

from __future__ import annotations

import codecs
import re

#: Bytes in which a page must declare its charset, and a few more.
LOOK_AT = 2048
FALLBACK = "cp1252"

_IN_HEADER = re.compile(r"charset\s*=\s*[\"']?([\w.:+-]+)", re.IGNORECASE)
_IN_PAGE = re.compile(
    rb"<(?:meta|\?xml)\b[^>]{0,500}?(?:charset|encoding)\s*=\s*[\"']?([\w.:+-]+)", re.IGNORECASE
)
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
#: Names that pages use, and the charset that browsers use for them.
_MEANT = {
    "ascii": FALLBACK,
    "iso8859-1": FALLBACK,
    "latin-1": FALLBACK,
    "us-ascii": FALLBACK,
    "gb2312": "gb18030",
    "gbk": "gb18030",
}


def charset_of(body: bytes, content_type: str = "") -> str:
    """The charset of a page, by a name that Python knows."""
    for mark, name in _MARKS:
        if body.startswith(mark):
            return name
    if (found := _IN_HEADER.search(content_type)) and (known := _known(found[1])):
        return known
    if (said := _IN_PAGE.search(body[:LOOK_AT])) and (known := _known(said[1].decode("ascii"))):
        # The declaration was readable as ASCII, so the page is not in UTF-16, even if it says so.
        return "utf-8" if known.startswith("utf-16") else known
    return "utf-8" if _fits_utf8(body) else FALLBACK


def decode(body: bytes, charset: str) -> str:
    """Always returns text: invalid bytes become U+FFFD. The byte order mark is removed."""
    return body.decode(charset, "replace").removeprefix("\ufeff")


def _known(name: str) -> str:
    try:
        found = codecs.lookup(name)
    except LookupError:
        return ""
    # Codecs such as base64 and rot13 are not charsets.
    is_text = getattr(found, "_is_text_encoding", True)
    return _MEANT.get(found.name, found.name) if is_text else ""


def _fits_utf8(body: bytes) -> bool:
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        # A truncated page can end in the middle of a character.
        return error.reason == "unexpected end of data"
    return True
