"""Short forms of ids in tables: `quotes..gtp9` for `quotes-06gub8v6bdvhgtp9`, and back.

An id is a name, ten characters of time and six random characters. A short form keeps the name
and the last characters; every command accepts it in place of the id. Only a center knows all ids;
a short form that matches several is rejected with a list of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from skep.errors import InvalidInput, SkepError

if TYPE_CHECKING:
    from skep.embed.center_address import CenterAddress
    from skep.wire.client import CenterClient

LEAST = 4
SHOWN = 5
#: Runs per page, and the number of pages that are searched, newest first.
PAGE, PAGES = 1000, 20
_LONG = re.compile(r"(.+)-([0-9a-v]{16})(\.[0-9]{1,3})?")
_SHORT = re.compile(r"(.+)\.\.([0-9a-v]{4,16})(\.[0-9]{1,3})?")


class Id(str):
    """A cell of a table that may be shown in its short form."""

    __slots__ = ()


def short_form(text: str, length: int = LEAST) -> str:
    """The name and the last characters; an id that Skep did not create is not shortened."""
    found = _LONG.fullmatch(text)
    return text if found is None else f"{found[1]}..{found[2][-length:]}{found[3] or ''}"


def short_forms(ids: Iterable[str]) -> dict[str, str]:
    """Id -> its short form, long enough to be unique among these ids."""
    wanted = set(ids)
    for length in range(LEAST, 16):
        forms = {one: short_form(one, length) for one in wanted}
        if len(set(forms.values())) == len(wanted):
            return forms
    return {one: one for one in wanted}


def is_short(text: str) -> bool:
    return _SHORT.fullmatch(text) is not None


def matching(text: str, ids: Iterable[str]) -> str:
    """The id that matches a short form, or the text itself if none matches. Raises InvalidInput
    if several match."""
    found = _SHORT.fullmatch(text)
    known = list(ids)
    if found is None or text in known:
        return text
    pattern = re.compile(
        f"{re.escape(found[1])}-[0-9a-v]{{{16 - len(found[2])}}}{found[2]}"
        f"{re.escape(found[3] or '')}"
    )
    hits = sorted(one for one in known if pattern.fullmatch(one))
    if len(hits) > 1:
        shown = ", ".join(hits[:SHOWN]) + (", ..." if len(hits) > SHOWN else "")
        raise InvalidInput(f"{text!r} matches {len(hits)} ids; use one of {shown}")
    return hits[0] if hits else text


async def full_names(reach: CenterAddress, given: Sequence[tuple[str, str]]) -> list[str]:
    """(kind, text) -> the full id, or the text itself if the center does not answer."""
    try:
        async with reach.client() as client:
            lists = {kind: await _LISTS[kind](client) for kind in {kind for kind, _ in given}}
    except InvalidInput:
        raise
    except SkepError:
        return [text for _, text in given]
    return [matching(text, lists[kind]) for kind, text in given]


async def run_ids(client: CenterClient) -> list[str]:
    """The ids of the newest runs."""
    from skep.wire.api.runs import RunPage

    found: list[str] = []
    before: float | None = None
    for _ in range(PAGES):
        answer = await client.api.runs.list(RunPage(PAGE, before))
        found += [run.id for run in answer.items]
        before = answer.next
        if before is None:
            break
    return found


async def agent_ids(client: CenterClient) -> list[str]:
    return [line.agent.id for line in (await client.api.agents.list()).items]


_LISTS = {"run": run_ids, "agent": agent_ids}
