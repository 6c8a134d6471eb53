"""Cuts HTTP heads that are too long for readers of WARC files. Pure.

Used by agents when they create records. Nothing is lost: the caller stores every line as received
in a `metadata` record next to the cut one.
"""

from __future__ import annotations

from collections.abc import Sequence

Headers = Sequence[tuple[str, str]]

#: Maximum bytes of the HTTP head inside a record: FastWARC stops reading at 32 KiB. A longer one
#: is cut, and a `metadata` record next to it has all lines as received.
HEAD_ROOM = 24 * 1024
#: Maximum characters of one line in a head that has to be cut.
LINE_ROOM = 2 * 1024
#: Bytes of a line in addition to name and value: a colon, a space, the end of the line, and the
#: prefix of a renamed header (`X-Archive-Orig-`).
_BESIDE = 20
#: The header that marks a cut head.
LINES_CUT = "X-Archive-Cut-Headers"
#: Headers without which the body cannot be understood: they are always kept.
_NEEDED = frozenset({"content-type", "content-encoding", "content-length", "location", "host"})


def _bytes(*parts: str) -> int:
    """Bytes in a record, with separators: characters can have several bytes."""
    return sum(len(part.encode("utf-8", "replace")) for part in parts) + _BESIDE


def header_lines(headers: Headers) -> list[str]:
    return [": ".join(header) for header in headers]


def cut_head(reason: str, headers: Headers) -> tuple[str, list[tuple[str, str]]]:
    """The head within `HEAD_ROOM`: long lines are cut, and the last ones are left out."""
    short = [(name[:LINE_ROOM], value[:LINE_ROOM]) for name, value in headers]
    rooms = {False: HEAD_ROOM // 2, True: HEAD_ROOM // 4}
    kept: list[tuple[str, str]] = []
    for name, value in short:
        needed, size = name.lower() in _NEEDED, _bytes(name, value)
        if size <= rooms[needed]:
            rooms[needed] -= size
            kept.append((name, value))
    whole = set(headers)
    changed = len(headers) - sum(one in whole for one in kept)
    return reason[:LINE_ROOM], [*kept, (LINES_CUT, str(changed))]
