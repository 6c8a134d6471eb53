"""The revisions of a job: who changed what when, two of them compared, and one restored."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from skep.errors import InvalidInput
from skep.portal.page import Done, PageCall
from skep.portal.pages.work.job_editor import author, read_draft
from skep.portal.panels import Refused, part
from skep.portal.show.diffs import document_in
from skep.portal.show.times import moment
from skep.wire.api.jobs import Between, JobView, Putting


async def data(call: PageCall, view: JobView) -> dict[str, Any]:
    name, newest = view.kept.job.name, view.kept.revision
    found = await part(call.api.jobs.revisions(name))
    new = _number(call.query.get("new", "")) or newest
    old = _number(call.query.get("old", ""))
    old = max(new - 1, 0) if old is None else old
    diff = await part(call.api.jobs.diff(name, Between(old, new)))
    lines = [] if isinstance(found, Refused) else found.items
    return {
        "found": found,
        "lines": [(line, moment(line.at, call.now)) for line in lines],
        "old": old,
        "new": new,
        "newest": newest,
        "diff": diff,
    }


async def restore(call: PageCall, name: str) -> Done:
    """Store the document of an older revision as a new one."""
    wanted = _number(call.field("revision"))
    if not wanted:
        raise InvalidInput("name the revision to restore")
    text = document_in((await call.api.jobs.diff(name, Between(0, wanted))).diff)
    draft = read_draft(text, 0)
    if draft.problems:
        raise InvalidInput(draft.problems[0])
    await call.api.jobs.put(name, draft.document, Putting(author=author(call)))
    said = call.texts.plain("job.said_restored", number=str(wanted))
    return Done(said, f"/jobs/{quote(name, safe='')}?tab=revisions")


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None  # noqa: PLR2004
