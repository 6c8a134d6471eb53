"""Parses archived pages again and compares the items with those that were kept. Pure but
for the spider's own code.

Runs in the spider's process. Nothing is downloaded and nothing is changed: requests that
the callbacks yield are dropped. A page counts with all of its items, in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from skep.spiders.authoring.callbacks import Caller
from skep.spiders.authoring.spider import Spider
from skep.spiders.driving.harvest import Harvester
from skep.spiders.driving.page_parsing import Parser
from skep.spiders.driving.stats import Stats
from skep.spiders.ports import Page

#: Differences that are kept as examples, for each field and for each kind.
EXAMPLES = 3
#: Of the whole item: it is there once only.
WHOLE = ""

Data = dict[str, Any]


class Example(msgspec.Struct, omit_defaults=True):
    """One difference: `kind` is added, removed or changed; no `field` is the whole item."""

    url: str
    kind: str
    field: str = WHOLE
    before: Any = None
    now: Any = None


class FieldChanges(msgspec.Struct):
    """How often a field of items that are in both differs."""

    added: int = 0
    removed: int = 0
    changed: int = 0


class Difference(msgspec.Struct):
    """Between the items that were kept and those of now."""

    pages: int = 0
    kept: int = 0
    now: int = 0
    same: int = 0
    added: int = 0
    removed: int = 0
    changed: int = 0
    #: Callbacks that raised.
    errors: int = 0
    fields: dict[str, FieldChanges] = msgspec.field(default_factory=dict)
    examples: list[Example] = msgspec.field(default_factory=list)

    @property
    def is_none(self) -> bool:
        return not (self.added or self.removed or self.changed or self.errors)


class Replay:
    """Give it page after page; `difference` is what came of it."""

    def __init__(self, spider: Spider) -> None:
        self.difference = Difference()
        self._stats = Stats()
        self._caller = Caller(spider.options.callback_seconds)
        self._parser = Parser(spider, self._caller, Harvester(spider, self._stats), self._stats)

    async def pages(self, pages: Iterable[Page], kept: Mapping[int, Sequence[Data]]) -> None:
        """`kept`: by request, the items of its page in their order. Raises parsing.Stop when
        the spider's code hangs or raises too often."""
        with self._caller:
            for page in pages:
                harvest = await self._parser.parse(page)
                self.difference.pages += 1
                self.difference.errors = self._stats.callback_errors
                found = [item.data for item in harvest.items] if harvest else []
                before = kept.get(page.id, ())
                self.difference.kept += len(before)
                self._compare(page, before, found)

    def _compare(self, page: Page, before: Sequence[Data], now: Sequence[Data]) -> None:
        self.difference.now += len(now)
        old, new = _unequal(before, now)
        self.difference.same += len(before) - len(old)
        url = page.final_uri or page.uri
        for was, became in zip(old, new, strict=False):
            self._pair(url, was, became)
        for item in old[len(new) :]:
            self._single(url, "removed", item)
        for item in new[len(old) :]:
            self._single(url, "added", item)

    def _single(self, url: str, kind: str, item: Data) -> None:
        counted = self.difference.added if kind == "added" else self.difference.removed
        setattr(self.difference, kind, counted + 1)
        if counted < EXAMPLES:
            example = Example(url, kind)
            example.before, example.now = (None, item) if kind == "added" else (item, None)
            self.difference.examples.append(example)

    def _pair(self, url: str, was: Data, became: Data) -> None:
        self.difference.changed += 1
        for name in {**was, **became}:
            if name not in was:
                kind = "added"
            elif name not in became:
                kind = "removed"
            elif was[name] != became[name]:
                kind = "changed"
            else:
                continue
            counts = self.difference.fields.setdefault(name, FieldChanges())
            counted = getattr(counts, kind)
            setattr(counts, kind, counted + 1)
            if counted < EXAMPLES:
                example = Example(url, kind, name, was.get(name), became.get(name))
                self.difference.examples.append(example)


def _unequal(before: Sequence[Data], now: Sequence[Data]) -> tuple[list[Data], list[Data]]:
    """What has no equal on the other side."""
    old, new = list(before), []
    for item in now:
        if item in old:
            old.remove(item)
        else:
            new.append(item)
    return old, new
