"""Two runs compared: settings, figures, items and failures, side by side."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from skep.errors import NotFound
from skep.model.run import RUN_NAME
from skep.portal.page import Outcome, Page, PageCall, View
from skep.portal.panels import Refused, part
from skep.portal.show.details import pairs_of
from skep.portal.show.ledgers import ORDER, ledger_bar
from skep.portal.show.numbers import duration, number, rate, share, size
from skep.wire.api.results import ItemPage, Items
from skep.wire.api.runs import RunPage, RunView

#: Items of each run whose fields are counted, and runs that are offered.
ITEMS, OFFERED = 1000, 50


@dataclass(frozen=True, slots=True)
class Compared:
    """One line: the name, both values, and whether they differ. `key` is a text, or `name` is
    shown as it is."""

    key: str
    old: str
    new: str
    name: str = ""

    @property
    def differs(self) -> bool:
        return self.old != self.new


async def show(call: PageCall) -> Outcome:
    """`?old=RUN&new=RUN`; without them a form that asks for both."""
    old, new = call.query.get("old", "").strip(), call.query.get("new", "").strip()
    runs = await part(call.api.runs.list(RunPage(OFFERED, filter="")))
    offered = [] if isinstance(runs, Refused) else [run.id for run in runs.items]
    data: dict[str, Any] = {"old": old, "new": new, "offered": offered, "both": None}
    if old and new:
        _check(old, new)
        views = await asyncio.gather(call.api.runs.show(old), call.api.runs.show(new))
        data |= {"both": views, **await _compared(call, *views)}
    return View("pages/compare.html", data, watch=_watch(old, new))


def _check(*names: str) -> None:
    """Raises NotFound for a text that cannot be the name of a run, and so part of a path."""
    for name in names:
        if not re.fullmatch(RUN_NAME, name):
            raise NotFound(f"there is no run {name[:64]!r}")


def _watch(old: str, new: str) -> tuple[str, ...]:
    return (f"run:{old}", f"run:{new}") if old and new else ()


async def _compared(call: PageCall, old: RunView, new: RunView) -> dict[str, Any]:
    asks = ItemPage(limit=ITEMS)
    items = await asyncio.gather(
        *(part(call.api.results.items(view.run.id, asks)) for view in (old, new))
    )
    return {
        "bars": [ledger_bar(view.ledger, f"run:{view.run.id}") for view in (old, new)],
        "settings": _settings(old, new),
        "figures": _figures(old, new),
        "statuses": counted(old.figures.statuses, new.figures.statuses),
        "failures": counted(old.figures.failures, new.figures.failures),
        "items": next((one for one in items if isinstance(one, Refused)), None)
        or _items(*(one for one in items if not isinstance(one, Refused))),
    }


def _settings(old: RunView, new: RunView) -> list[Compared]:
    """Only those that differ."""
    sides = [
        {pair.name: pair.value for pair in pairs_of(msgspec.to_builtins(view.run.settings))}
        for view in (old, new)
    ]
    lines = (Compared("", *_both(sides, name), name) for name in {**sides[0], **sides[1]})
    return [line for line in lines if line.differs]


def _both(sides: Iterable[Mapping[str, str]], name: str) -> tuple[str, str]:
    old, new = (side.get(name, "") for side in sides)
    return old, new


#: Text key -> how a view shows it.
_FIGURES: dict[str, Callable[[RunView], str]] = {
    "compare.accepted": lambda view: number(view.ledger.accepted),
    **{
        f"states.{state.name.lower()}": lambda view, state=state: number(view.ledger.of(state))  # type: ignore[misc]
        for state in ORDER
    },
    "compare.answers": lambda view: number(view.figures.answers),
    "compare.failed": lambda view: share(sum(view.figures.failures.values()), view.figures.answers),
    "compare.rate": lambda view: rate(_mean_rate(view)),
    "compare.received": lambda view: size(view.figures.received),
    "compare.sent": lambda view: size(view.figures.sent),
    "compare.agents": lambda view: number(len(view.figures.agents)),
    "compare.lasted": lambda view: duration(_lasted(view)),
}


def _lasted(view: RunView) -> float:
    """Seconds from the start to the last change of its state."""
    return max((view.run.changed_at or view.run.created_at) - view.run.created_at, 0.0)


def _mean_rate(view: RunView) -> float:
    seconds = _lasted(view)
    return view.figures.answers / seconds if seconds else 0.0


def _figures(old: RunView, new: RunView) -> list[Compared]:
    return [Compared(key, shown(old), shown(new)) for key, shown in _FIGURES.items()]


def counted(old: Mapping[str, int], new: Mapping[str, int]) -> list[Compared]:
    """Counts by name, the largest first."""
    total = Counter(old) + Counter(new)
    return [
        Compared("", number(old.get(name, 0)), number(new.get(name, 0)), name)
        for name, _ in total.most_common(50)
    ]


def _items(old: Items, new: Items) -> list[Compared]:
    """How many items have each field, as a share: a field that is suddenly empty stands out."""
    filled = [_filled(old), _filled(new)]
    total = Counter(filled[0]) + Counter(filled[1])
    counts = len(old.items), len(new.items)
    first = Compared("compare.items_read", _read(counts[0]), _read(counts[1]))
    lines = [
        Compared("", share(filled[0][name], counts[0]), share(filled[1][name], counts[1]), name)
        for name, _ in total.most_common(50)
    ]
    return [first, *lines]


def _read(count: int) -> str:
    return number(count) if count < ITEMS else f"{number(count)}+"


def _filled(found: Items) -> Counter[str]:
    return Counter(
        name
        for item in found.items
        for name, value in item.data.items()
        if value not in (None, "", [], {})
    )


PAGES = (Page("compare", "/compare", show, under="runs"),)
