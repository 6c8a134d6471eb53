"""The definition of a job as form and as YAML: checked by the API's dry run, then stored.

Also the page of a new job. The YAML is the document, and the API alone decides whether it is
valid. Nothing that was typed is lost: a refused save shows the same text again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from skep.errors import Conflict, InvalidInput
from skep.model.jobs.documents import read_documents, write_document
from skep.model.jobs.job import KeptJob
from skep.portal.page import Done, Outcome, Page, PageCall, View
from skep.portal.panels import Refused, part
from skep.portal.show.job_form import ShownSection, merged, shown_sections
from skep.wire.api.jobs import AUTHOR_LIMIT, Between, JobPut, Putting

#: A first document for each kind of job; `name` is for the user to choose.
TEMPLATES: dict[str, dict[str, Any]] = {
    "requests": {
        "name": "new-job",
        "requests": ["https://example.org/"],
        "settings": {"retries": 2},
    },
    "spider": {
        "name": "new-spider",
        "spider": {
            "path": "spider.py:Spider",
            "arguments": {"start_urls": "https://example.org/"},
        },
        "settings": {"retries": 2},
    },
    "generator": {
        "name": "new-generator",
        "generators": [{"kind": "sitemap", "url": "https://example.org/sitemap.xml"}],
        "schedule": {"cron": "0 3 * * *"},
    },
    "app": {
        "name": "new-app",
        "app": {"package": "app.zip", "command": ["python", "main.py"]},
        "placement": {"strategy": "fixed", "n": 1},
    },
}


@dataclass(frozen=True, slots=True)
class Meanwhile:
    """What another user stored since the editor was opened. `theirs` are their changes, `mine`
    what saving this text would change now."""

    kept: KeptJob
    theirs: str
    mine: str


@dataclass(frozen=True, slots=True)
class Draft:
    """A document that is being edited, and what the API says about it."""

    text: str
    #: The revision that it is based on; 0 = a new job.
    revision: int
    document: dict[str, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    #: The answer of the dry run; None = it was refused.
    put: JobPut | None = None
    meanwhile: Meanwhile | None = None


def read_draft(text: str, revision: int) -> Draft:
    """The document of a text, or why there is none."""
    try:
        found = read_documents(text, "YAML")
    except InvalidInput as error:
        return Draft(text, revision, problems=(error.detail,))
    if len(found) != 1 or not isinstance(found[0], dict):
        return Draft(text, revision, problems=("YAML: one document with fields is needed",))
    return Draft(text, revision, found[0])


async def checked(call: PageCall, name: str, draft: Draft) -> Draft:
    """The draft with the answer of the dry run. The code of generators is not run for it."""
    if draft.problems:
        return draft
    asks = Putting(dry_run=True, test=False)
    try:
        put = await call.api.jobs.put(_target(name, draft), draft.document, asks, draft.revision)
    except Conflict as error:
        return await refused(call, name, draft, error)
    except InvalidInput as error:
        return replace(draft, problems=tuple(error.detail.splitlines()))
    return replace(draft, put=put)


async def refused(call: PageCall, name: str, draft: Draft, error: Conflict) -> Draft:
    """The draft with what was stored meanwhile; a new job only has a name that is taken."""
    if not name:
        return replace(draft, problems=(error.detail,))
    kept = (await call.api.jobs.show(name)).kept
    between = Between(draft.revision, kept.revision)
    theirs = await part(call.api.jobs.diff(name, between))
    asks = Putting(dry_run=True, test=False)
    mine = await part(call.api.jobs.put(name, draft.document, asks))
    meanwhile = Meanwhile(
        kept,
        theirs.error.detail if isinstance(theirs, Refused) else theirs.diff,
        mine.error.detail if isinstance(mine, Refused) else mine.diff,
    )
    return replace(draft, meanwhile=meanwhile)


def author(call: PageCall) -> str:
    """Who changes a job, for its list of revisions."""
    return "" if call.me is None else call.me.who[:AUTHOR_LIMIT]


def _target(name: str, draft: Draft) -> str:
    """The job that is stored: that of the page, or the one that a new document names."""
    given = name or str(draft.document.get("name") or "")
    if not given or "/" in given:
        raise InvalidInput("name: 1 to 46 letters, digits, `.`, `_` and `-`")
    return given


async def editor_data(call: PageCall, draft: Draft) -> dict[str, Any]:
    """What the template of the editor needs."""
    description = json.loads(await call.api.health.openapi())
    sections: list[ShownSection] = []
    if draft.document:
        sections = shown_sections(description, draft.document)
    return {"draft": draft, "sections": sections}


async def sent_draft(call: PageCall) -> Draft:
    """The draft of a submitted form; with `act=form` its fields go into the YAML."""
    given = call.field("revision", "0")
    revision = int(given) if given.isascii() and given.isdecimal() and len(given) < 10 else 0  # noqa: PLR2004
    draft = read_draft(call.field("yaml").replace("\r\n", "\n"), revision)
    if call.field("act") != "form" or draft.problems:
        return draft
    try:
        description = json.loads(await call.api.health.openapi())
        document = merged(description, draft.document, call.form)
    except InvalidInput as error:
        return replace(draft, problems=(error.detail,))
    return replace(draft, document=document, text=write_document(document))


async def store(call: PageCall, name: str) -> tuple[Draft, str]:
    """Check or save what was sent: the draft, and the name of the stored job ("" = not stored)."""
    draft = await sent_draft(call)
    if call.field("act") != "save" or draft.problems:
        return await _checked(call, name, draft), ""
    try:
        target = _target(name, draft)
        asks = Putting(author=author(call))
        await call.api.jobs.put(target, draft.document, asks, draft.revision)
    except Conflict as error:
        return await refused(call, name, draft, error), ""
    except InvalidInput as error:
        return replace(draft, problems=tuple(error.detail.splitlines())), ""
    return draft, target


async def _checked(call: PageCall, name: str, draft: Draft) -> Draft:
    try:
        return await checked(call, name, draft)
    except InvalidInput as error:
        return replace(draft, problems=(error.detail,))


def _kind(call: PageCall) -> str:
    kind = call.query.get("kind", "requests")
    return kind if kind in TEMPLATES else "requests"


async def show_new(call: PageCall) -> Outcome:
    """A new job from a template, or a copy of another job (`?like=NAME`)."""
    document = TEMPLATES[_kind(call)]
    if call.query.get("like"):
        kept = (await call.api.jobs.show(call.query["like"])).kept
        text = write_document(kept.job)
        document = {**read_draft(text, 0).document, "name": f"{kept.job.name[:41]}-copy"}
    draft = await _checked(call, "", read_draft(write_document(document), 0))
    return await _new_page(call, draft)


async def _new_page(call: PageCall, draft: Draft, status: int = 200) -> View:
    data = {"kinds": list(TEMPLATES), "kind": _kind(call), **await editor_data(call, draft)}
    return View("pages/job_new.html", data, status=status)


async def save_new(call: PageCall) -> Outcome:
    draft, stored = await store(call, "")
    if stored:
        said = call.texts.plain("job_editor.said_created", name=stored)
        return Done(said, f"/jobs/{quote(stored, safe='')}")
    return await _new_page(call, draft, 400 if call.field("act") == "save" else 200)


PAGES = (
    Page("job_editor", "/new/job", show_new, under="jobs"),
    Page("job_editor", "/new/job", save_new, method="POST", under="jobs"),
)
