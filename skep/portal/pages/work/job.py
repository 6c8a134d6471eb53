"""One job: its newest run, why it waits, its definition, revisions, schedule, and its acts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast, get_args
from urllib.parse import quote

from skep.errors import InvalidInput
from skep.model.filter.syntax import quoted_if_needed
from skep.model.jobs.documents import write_document
from skep.model.jobs.job import Job, KeptJob
from skep.model.run import Run
from skep.portal.page import Done, Outcome, Page, PageCall, View
from skep.portal.pages.jobs import kind_of
from skep.portal.pages.work import job_editor, job_revisions, job_run
from skep.portal.panels import Refused, given, part, parts
from skep.portal.show.acts import Act
from skep.portal.show.cells import name_cell, state_cell, text_cell, time_cell
from skep.portal.show.commands import command
from skep.portal.show.details import Tab
from skep.portal.show.ledgers import ledger_bar
from skep.portal.show.tables import Column, Row
from skep.portal.show.times import moment, seconds_of
from skep.wire.api.jobs import JobVerb, JobView, Putting
from skep.wire.api.runs import RunPage, Runs, Waiting

TABS = ("overview", "definition", "revisions", "run")
#: Tabs for those who may act.
_ACTING = frozenset({"run"})
RUN_COLUMNS = (
    Column("job.column_run"),
    Column("job.column_state"),
    Column("job.column_started"),
    Column("job.column_changed"),
    Column("job.column_reason"),
)
RUNS_SHOWN = 10
#: Seconds to wait for the processes of runs, so that the page shows what they did.
_WAIT = 2.0


def path_of(name: str, tab: str = "") -> str:
    base = f"/jobs/{quote(name, safe='')}"
    return f"{base}?tab={tab}" if tab and tab != TABS[0] else base


async def show(call: PageCall) -> Outcome:
    view = await call.api.jobs.show(call.path["job"])
    tab = call.query.get("tab", TABS[0])
    tab = tab if tab in _tabs_for(call) else TABS[0]
    return await _page(call, view, tab, await _TAB_DATA[tab](call, view))


async def _page(
    call: PageCall, view: JobView, tab: str, more: dict[str, Any], status: int = 200
) -> View:
    name = view.kept.job.name
    word = state_word(view.kept)
    data: dict[str, Any] = {
        "view": view,
        "job": view.kept.job,
        "word": word,
        "kind": kind_of(view.kept.job),
        "tab": tab,
        "tabs": [Tab(f"job.tab_{one}", path_of(name, one), one == tab) for one in _tabs_for(call)],
        "acts": acts_of(view, call),
        **more,
    }
    watch = (f"job:{name}", f"runs:job:{quoted_if_needed(name)}")
    return View("pages/job.html", data, title=name, watch=watch, status=status)


def _tabs_for(call: PageCall) -> list[str]:
    return [one for one in TABS if one not in _ACTING or call.may("operator")]


def state_word(kept: KeptJob) -> str:
    if kept.deleted:
        return "deleted"
    return "enabled" if kept.job.enabled else "disabled"


def acts_of(view: JobView, call: PageCall) -> list[Act]:
    """The acts that its state allows, for a caller who may act."""
    if not call.may("operator") or view.kept.deleted:
        return []
    verbs = ["run"]
    if any(run.open for run in view.runs):
        verbs += ["pause", "resume", "stop", "restart"]
    verbs += ["disable" if view.kept.job.enabled else "enable", "delete"]
    return [_act(view.kept.job, verb) for verb in verbs]


def _act(job: Job, verb: str) -> Act:
    name = quote(job.name, safe="")
    destroys = verb in {"stop", "restart", "delete"}
    api = f"/api/v1/jobs/{name}"
    return Act(
        f"job.act_{verb}",
        f"/jobs/{name}/{verb}",
        destroys=destroys,
        confirm=f"job.confirm_{verb}" if destroys else "",
        command=command("job", "rm" if verb == "delete" else verb, job.name),
        api_path=api if verb == "delete" else f"{api}/{verb}",
        method="DELETE" if verb == "delete" else "POST",
    )


async def _overview(call: PageCall, view: JobView) -> dict[str, Any]:
    name = view.kept.job.name
    wanted = RunPage(RUNS_SHOWN, filter=f"job:{quoted_if_needed(name)}")
    found = await parts(why=call.api.why.job(name), runs=call.api.runs.list(wanted))
    runs = given(found["runs"], Runs([])).items
    newest = await part(call.api.runs.show(runs[0].id)) if runs else None
    return {
        "why": found["why"],
        "runs_part": found["runs"],
        "runs": runs,
        "newest": newest,
        "bar": _bar(newest),
        "run_columns": RUN_COLUMNS,
        "run_rows": [_run_row(run, call.now) for run in runs],
        "due": [(text, moment(seconds_of(text), call.now)) for text in view.next],
    }


def _bar(newest: Any) -> Any:
    if newest is None or isinstance(newest, Refused):
        return None
    return ledger_bar(newest.ledger, f"run:{newest.run.id}")


def _run_row(run: Run, now: float) -> Row:
    href = f"/runs/{quote(run.id, safe='')}"
    cells = (
        name_cell(run.id, href),
        state_cell(run.state),
        time_cell(run.created_at, now),
        time_cell(run.changed_at or run.created_at, now),
        text_cell(run.reason),
    )
    return Row(run.id, cells, href)


async def _definition(call: PageCall, view: JobView) -> dict[str, Any]:
    text = write_document(view.kept.job)
    if not call.may("operator") or view.kept.deleted:
        return {"text": text}
    draft = job_editor.read_draft(text, view.kept.revision)
    return {"text": text, **await job_editor.editor_data(call, draft)}


async def edit(call: PageCall) -> Outcome:
    """Check or save the definition."""
    name = call.path["job"]
    draft, stored = await job_editor.store(call, name)
    if stored:
        return Done(call.texts.plain("job_editor.said_saved"), path_of(name, "definition"))
    view = await call.api.jobs.show(name)
    saving = call.field("act") == "save"
    status = 409 if saving and draft.meanwhile else 400 if saving else 200
    data = {"text": draft.text, **await job_editor.editor_data(call, draft)}
    return await _page(call, view, "definition", data, status)


async def change(call: PageCall) -> Outcome:
    """Enable, disable, delete, start a run, restore a revision, or steer the active runs."""
    name, verb = call.path["job"], call.path["verb"]
    if verb == "run":
        return await job_run.start(call, name)
    if verb == "restore":
        return await job_revisions.restore(call, name)
    if verb in {"enable", "disable", "delete"}:
        acts: dict[str, Callable[[str, Putting], Awaitable[Any]]] = {
            "enable": call.api.jobs.enable,
            "disable": call.api.jobs.disable,
            "delete": call.api.jobs.delete,
        }
        await acts[verb](name, Putting(author=job_editor.author(call)))
        path = "/jobs" if verb == "delete" else path_of(name)
        return Done(call.texts.plain(f"job.said_{verb}"), path)
    moved = await call.api.jobs.change(name, _verb(verb), Waiting(_WAIT))
    if moved.started:
        said = call.texts.plain("job.said_started", run=moved.started)
        return Done(said, f"/runs/{quote(moved.started, safe='')}")
    return Done(call.texts.plain("job.said_moved", n=len(moved.runs)), path_of(name))


def _verb(text: str) -> JobVerb:
    for verb in get_args(JobVerb):
        if text == verb:
            return cast("JobVerb", verb)
    raise InvalidInput(f"{text[:50]!r} is not an act on a job")


_TAB_DATA: dict[str, Callable[[PageCall, JobView], Awaitable[dict[str, Any]]]] = {
    "overview": _overview,
    "definition": _definition,
    "revisions": job_revisions.data,
    "run": job_run.data,
}

PAGES = (
    Page("job", "/jobs/{job}", show, under="jobs"),
    Page("job", "/jobs/{job}/definition", edit, method="POST", under="jobs"),
    Page("job", "/jobs/{job}/{verb}", change, method="POST", under="jobs"),
)
