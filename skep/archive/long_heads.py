"""HTTP heads that are too long for readers of WARC files: what of them stays in a record. Pure.

Used by agents when they make records. Nothing is lost: the caller keeps every line as it came
in a `metadata` record beside the one that was cut.
"""

from __future__ import annotations

from collections.abc import Sequence

Headers = Sequence[tuple[str, str]]

#: Most bytes of the HTTP head inside a record: FastWARC stops reading at 32 KiB. What is longer
#: is cut, and a `metadata` record beside the record keeps all lines as they came.
HEAD_ROOM = 24 * 1024
#: Characters of one line in a head that has to be cut.
LINE_ROOM = 2 * 1024
#: Bytes of a line beside a name and a value: a colon, a space, the end of the line, and what
#: the name of a coding gets in front of it (`X-Archive-Orig-`).
_BESIDE = 20
#: The header that says so.
LINES_CUT = "X-Archive-Cut-Headers"
#: Headers without which the body cannot be understood: they are kept whatever is cut.
_NEEDED = frozenset({"content-type", "content-encoding", "content-length", "location", "host"})


def _bytes(*parts: str) -> int:
    """In a record, with what stands between them: characters may have several bytes."""
    return sum(len(part.encode("utf-8", "replace")) for part in parts) + _BESIDE


def header_lines(headers: Headers) -> list[str]:
    return [": ".join(header) for header in headers]


def cut_head(reason: str, headers: Headers) -> tuple[str, list[tuple[str, str]]]:
    """The same within `HEAD_ROOM`: long lines are cut, and the last ones are left out."""
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
