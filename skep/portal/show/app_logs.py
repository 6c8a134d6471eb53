"""The log of an instance for the macro `log_view`: bytes as lines. Pure.

A part of a log begins and ends anywhere. New text that goes on with an open line is marked, so
that the module adds it to that line.
"""

from __future__ import annotations

from skep.portal.show.logs import LINE_LIMIT, ShownLine, ShownLog
from skep.wire.api.apps import LogText


def app_log(
    found: LogText, which: str, *, older: bool = False, joins: bool = False, whole: bool = False
) -> ShownLog:
    """`which` is the query that names the instance; `older`: a part before other lines; `joins`:
    the line before it was open; `whole`: it starts at the start of a line."""
    text, first = found.text, found.start
    if not (joins or whole) and first > found.deleted and "\n" in text:
        cut = text.index("\n") + 1  # the rest of a line whose start is in the part before
        first, text = first + len(text[:cut].encode()), text[cut:]
    is_open = bool(text) and not text.endswith("\n")
    lines = [ShownLine("", "", "", "", line[:LINE_LIMIT]) for line in text.split("\n")]
    lines = lines if is_open else lines[:-1]
    before = f"{which}&before={first}" if first > found.deleted else ""
    newer = f"{which}&from={found.next}" + ("&open=yes" if is_open or (joins and not text) else "")
    return ShownLog(lines, before, "" if older or found.over else newer, joins=joins)
