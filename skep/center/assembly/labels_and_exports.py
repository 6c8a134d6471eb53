"""Acts of bulk operations that label objects or export them. Used once, when a center is built.

An export has what the lists show, with secrets masked for every role. Nothing starts here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from skep.center.foundation import Foundation
from skep.center.request_line import line_of
from skep.jobs.definitions.job_repository import JobRepository
from skep.jobs.definitions.masked_jobs import MASKS
from skep.model.labels import LABELS_LIMIT, LabelName, Labels
from skep.model.run import Run, without_secrets
from skep.operations.acts import Act, ActTraits, Batch
from skep.operations.export import ExportAct
from skep.operations.kinds import EachAct, Skipped
from skep.runtime.masked_answers import masked
from skep.store.ports import Store

#: Objects that one step exports, and that an operation exports per second at most.
EXPORT_BATCH, EXPORT_RATE = 500, 5000
_SAME = Skipped("has these labels already")


class LabelArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which labels are added and removed."""

    #: Name and value; the value may be empty.
    add: Labels = {}
    #: Names of labels.
    remove: Annotated[tuple[LabelName, ...], Meta(max_length=LABELS_LIMIT)] = ()

    def __post_init__(self) -> None:
        if not self.add and not self.remove:
            raise ValueError("give labels to `add` or to `remove`")
        both = sorted(set(self.add) & set(self.remove))
        if both:
            raise ValueError(f"cannot both add and remove {', '.join(both)}")


def label_acts(base: Foundation, book: JobRepository) -> list[Act]:
    """For jobs and runs."""
    # Labels decide what a scope covers: a caller with a scope must not move objects out of or
    # into one.
    traits = partial(ActTraits, "label", arguments=LabelArguments, scoped=False)
    run = traits(resource="runs", help="Add labels to runs, or remove them.")
    job = traits(
        resource="jobs", help="Add labels to jobs, or remove them; runs that exist keep theirs."
    )
    parts = (base.store, base.clock, base.settings.center.alive_after)
    return [
        EachAct(run, *parts, partial(_label_run, base.store)),
        EachAct(job, *parts, partial(_label_job, book)),
    ]


async def _label_run(store: Store, run: str, batch: Batch) -> Skipped | None:
    given: LabelArguments = batch.arguments
    changed = await store.runs.relabel(run, given.add, given.remove)
    return None if changed else _SAME


async def _label_job(book: JobRepository, job: str, batch: Batch) -> Skipped | None:
    given: LabelArguments = batch.arguments
    author = batch.operation.asked.creator
    changed = await book.relabel(job, author, given.add, given.remove)
    return None if changed else _SAME


def export_acts(base: Foundation) -> list[Act]:
    """For requests, failures, runs and jobs."""
    rows: tuple[tuple[str, Callable[[Any], Any]], ...] = (
        ("requests", line_of),
        ("failures", line_of),
        ("runs", _shown_run),
        ("jobs", _as_it_is),
    )
    return [_export(base, resource, shown) for resource, shown in rows]


def _export(base: Foundation, resource: str, shown: Callable[[Any], Any]) -> ExportAct:
    traits = ActTraits(
        "export",
        resource,
        f"Write {resource} into a file, one JSON object per line.",
        batch=EXPORT_BATCH,
        rate=EXPORT_RATE,
        scoped=False,
        exports=True,
    )
    alive_after = base.settings.center.alive_after
    return ExportAct(traits, base.store, alive_after, lambda one: masked(shown(one), MASKS))


def _shown_run(run: Run) -> Run:
    return without_secrets(run)


def _as_it_is(one: Any) -> Any:
    return one
