"""Jobs: set, show, run, pause and delete them, by name.

Run by centers. A document is checked completely before any of it is stored; every change is a
revision. Answers to callers who may only read are masked (`center/http/asgi.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from skep.center.api.listing import asked_filter, is_one_of, listed
from skep.center.api.path_names import job_name_in
from skep.center.http.authentication import Identity, Role
from skep.center.http.endpoint import Call, Endpoint, Scoping
from skep.center.http.scoping import (
    check_job,
    check_job_name,
    check_labels,
    runs_inside,
    without_agents,
)
from skep.errors import Conflict, Forbidden, InvalidInput, InvalidJob, NotFound, UnknownJob
from skep.jobs.runs.run_start import read_arguments, read_labels
from skep.jobs.schedule.timetable import next_fires
from skep.lanes.dispatch import try_reconcile
from skep.model.filter.checked import CheckedTerm
from skep.model.filter.states import JobWord
from skep.model.jobs.generator_progress import part_of
from skep.model.jobs.job import JOB_NAME, KeptJob
from skep.model.run import without_secrets
from skep.model.states import RunState
from skep.wire.api.jobs import (
    CHANGE_JOB,
    COMPARE_JOB_REVISIONS,
    DELETE_JOB,
    GET_JOB,
    LIST_JOB_REVISIONS,
    LIST_JOBS,
    RUN_JOB,
    SET_JOB,
    Between,
    Diff,
    JobList,
    JobPage,
    JobPut,
    JobView,
    Moved,
    RevisionLine,
    Revisions,
    Started,
)
from skep.wire.api.route import Route

JOB_NAMES: dict[str, Any] = {"job": {"type": "string", "pattern": JOB_NAME.removesuffix(r"(?!\n)")}}
VERBS = {
    "pause": RunState.PAUSED,
    "resume": RunState.RUNNING,
    "stop": RunState.CANCELLED,
    "restart": RunState.CANCELLED,
}
RUNS_SHOWN = 10


def job_name(call: Call) -> str:
    """The name in the path; raises InvalidInput if it is not valid."""
    return job_name_in(call.path["job"])


def author_of(who: Identity, said: str) -> str:
    known = who.subject or str(who.role)
    name = "".join(letter for letter in said if letter.isprintable()).strip()
    return f"{name} ({known})" if name else known


def _expected(call: Call, document: dict[str, Any] | None = None) -> int | None:
    """The revision that the caller expects, from If-Match or from the document."""
    given = call.headers.get("if-match", "").strip().strip('"')
    if document is not None and "revision" in document:
        given = str(document.pop("revision"))
    if given in {"", "*"}:
        return None
    if not given.isdecimal() or len(given) > 9:  # noqa: PLR2004 - no revision has more digits
        raise InvalidInput(f"revision {given[:50]!r} is not a number")
    return int(given)


async def list_jobs(call: Call) -> JobList:
    """All jobs, by name."""
    query: JobPage = call.query
    if query.filter is not None:
        items, more = await listed(call, "jobs", *_kept_only(call, query))
        return JobList(items, **more)
    if call.who.scope:
        return await _inside(call, query)
    found = await call.services.store.jobs.all(query.limit, query.after, deleted=query.deleted)
    last = found[-1].job.name if len(found) == query.limit else None
    return JobList(found, last)


async def _inside(call: Call, query: JobPage) -> JobList:
    """The same for a caller with a scope."""
    wanted = asked_filter(call, "jobs", *_kept_only(call, query))
    after = (query.after,) if query.after else None
    found = await call.services.store.lists.find(wanted, after, query.limit)
    return JobList(found.items, None if found.next is None else found.next[0])


def _kept_only(call: Call, query: JobPage) -> list[CheckedTerm]:
    """Deleted jobs are listed when the query or its filter asks for them."""
    asked = any("state" in term.facts for term in asked_filter(call, "jobs").terms)
    if query.deleted or asked:
        return []
    return [is_one_of("state", JobWord.ENABLED, JobWord.DISABLED)]


async def show_job(call: Call) -> JobView:
    """A job, its revision and its newest runs."""
    name = job_name(call)
    kept = await call.services.store.jobs.get(name)
    runs = await call.services.store.job_runs.of(name, RUNS_SHOWN)
    if call.who.scope:
        inside = await runs_inside(call, (one.run for one in runs))
        runs = [one for one in runs if one.run in inside]
    if call.who.role is Role.VIEWER:
        runs = [msgspec.structs.replace(one, arguments="") for one in runs]
    return JobView(kept, runs, _next(kept, call.services.clock.now()))


def _next(kept: KeptJob, now: float) -> list[str]:
    schedule = kept.job.schedule if kept.job.enabled and not kept.deleted else None
    return next_fires(schedule, kept.job.name, now) if schedule is not None else []


async def put_job(call: Call) -> JobPut:
    """Check a document and store it, all or nothing."""
    try:
        return await _checked_and_stored(call)
    except InvalidJob as error:
        if not call.who.scope:
            raise
        # The jobs of a cycle can be outside.
        raise InvalidJob(re.sub(r"a cycle: .*", "a cycle of jobs", error.detail)) from None


async def _checked_and_stored(call: Call) -> JobPut:
    document: dict[str, Any] = dict(call.body)
    name, book = job_name(call), call.services.jobs.book
    expected = _expected(call, document)
    document.setdefault("name", name)
    if call.who.scope:
        await _in_scope(call, name, document)
        expected = await _as_looked_at(call, name) if expected is None else expected
    beside = [one for one in call.query.beside.split(",") if one]
    if call.query.dry_run:
        await _at_revision(call, name, expected)
        try:
            job, what, diff = await book.try_out(document, test=call.query.test, beside=beside)
        except InvalidJob as error:
            if call.query.alert:
                await book.leave_alert(name, author_of(call.who, call.query.author), error)
            raise
        return JobPut(what, job, 0, diff)
    author = author_of(call.who, call.query.author)
    test = call.query.test
    kept, what = await book.put(name, document, expected, author, test=test, beside=beside)
    return JobPut(what, kept.job, kept.revision)


async def _in_scope(call: Call, name: str, document: dict[str, Any]) -> None:
    """Raises Forbidden, Conflict and UnknownJob for what is outside the scope of the caller."""
    check_labels(call, _labels_in(document), "the job")
    await check_job_name(call, name)
    beside = call.query.beside.split(",")
    for upstream in _upstream(document):
        check = check_job_name if upstream in (name, *beside) else check_job
        await check(call, job_name_in(upstream))


async def _as_looked_at(call: Call, name: str) -> int | None:
    """The revision that was found to be inside: it must not change before it is replaced."""
    try:
        kept = await call.services.store.jobs.get(name)
    except UnknownJob:
        return 0
    return None if kept.deleted else kept.revision


def _labels_in(document: Mapping[str, Any]) -> dict[str, str]:
    given = document.get("labels")
    try:
        return msgspec.convert(given, dict[str, str])
    except msgspec.ValidationError:  # the check of the document says what is wrong with others
        return {}


def _upstream(document: Mapping[str, Any]) -> list[str]:
    """The jobs that it runs after."""
    schedule = document.get("schedule")
    given = schedule.get("after") if isinstance(schedule, Mapping) else None
    if isinstance(given, str):
        return [given]
    return [one for one in given if isinstance(one, str)] if isinstance(given, list) else []


async def _at_revision(call: Call, name: str, expected: int | None) -> None:
    """Raises Conflict, so that a dry run fails where the change itself would."""
    if expected is None:
        return
    try:
        kept = await call.services.store.jobs.get(name)
    except UnknownJob:
        found = 0
    else:
        if kept.deleted:
            return
        found = kept.revision
    if expected != found:
        raise Conflict(f"job {name} is at revision {found}, not at {expected}")


async def delete_job(call: Call) -> KeptJob:
    """Delete a job. Its history stays, and active runs continue."""
    author = author_of(call.who, call.query.author)
    name = job_name(call)
    if call.who.scope:
        await _no_followers_outside(call, name)
    return await call.services.jobs.book.delete(name, _expected(call), author)


async def _no_followers_outside(call: Call, name: str) -> None:
    """Raises Conflict without the names of jobs that the caller may not see."""
    for follower in await call.services.jobs.scheduler.followers(name):
        try:
            await check_job(call, follower)
        except UnknownJob:
            raise Conflict(
                f"cannot delete job {name}: a job outside your scope depends on it"
            ) from None


async def job_revisions(call: Call) -> Revisions:
    """The changes of a job, with author and time."""
    found = await call.services.store.jobs.revisions(job_name(call), call.query.limit)
    return Revisions([RevisionLine(r.revision, r.at, r.author, r.what) for r in found])


async def diff_job(call: Call) -> Diff:
    """What changed between two revisions."""
    query: Between = call.query
    return Diff(await call.services.jobs.book.diff(job_name(call), query.old, query.new))


async def run_job(call: Call) -> Started:
    """Start a run, once per Idempotency-Key."""
    key = call.headers.get("idempotency-key", "")
    name = job_name(call)
    part = part_of(name, call.query.generator) if call.query.generator else name
    wait = call.services.settings.center.allocate_wait
    arguments = read_arguments(call.query.arguments)
    starts = call.services.jobs.starts
    labels = read_labels(call.query.labels)
    if call.who.scope:
        kept = await call.services.store.jobs.get(name)
        check_labels(call, {**kept.job.labels, **labels}, "the run")
    with without_agents(call):
        run = await starts.start_run(part, f"key {key}" if key else "", wait, arguments, labels)
    if call.who.scope and not await runs_inside(call, [run]):
        raise Conflict("a run outside your scope was started with this key; send another one")
    call.services.signals.runs.wake(run)
    return Started(run, name)


async def change_job(call: Call) -> Moved:
    """Pause, resume, stop or restart the runs of a job."""
    name, verb, control = job_name(call), call.path["verb"], call.services.control
    if verb not in VERBS:
        raise NotFound(f"{verb[:50]!r} is not an action; use one of run, {', '.join(VERBS)}")
    going = (await call.services.store.job_runs.going([name])).get(name, [])
    await _all_inside(call, name, going)
    with control.listening(going) as ear:
        for run in going:
            await control.expect(ear, run, VERBS[verb])
        act = _restart if verb == "restart" else _move
        moved = await act(call, name, verb)
        if moved.started:
            await control.expect(ear, moved.started, RunState.RUNNING)
        ear.only({run.id for run in moved.runs} | {moved.started or ""})
        moved.reached = await ear.gathered(call.query.wait)
        return moved


async def _all_inside(call: Call, name: str, going: Sequence[str]) -> None:
    """Raises Forbidden when the job has active runs outside the scope: it changes all of them."""
    if call.who.scope and set(going) - await runs_inside(call, going):
        raise Forbidden(
            f"job {name} has active runs outside your scope; change your runs one by one"
        )


async def _move(call: Call, name: str, verb: str) -> Moved:
    starts = call.services.jobs.starts
    move = {"pause": starts.pause, "resume": starts.resume, "stop": starts.stop}[verb]
    moved = await move(name)
    if verb == "resume":
        await try_reconcile(call.services.dispatcher)
    return Moved([without_secrets(run) for run in moved])


async def _restart(call: Call, name: str, _verb: str) -> Moved:
    """Stop the active runs, if there are any, and start a new one."""
    starts = call.services.jobs.starts
    try:
        stopped = await starts.stop(name)
    except Conflict:
        stopped = []
    with without_agents(call):
        started = await starts.start_run(name, "", call.services.settings.center.allocate_wait)
    call.services.signals.runs.wake(started)
    return Moved([without_secrets(run) for run in stopped], started)


def job_row(route: Route[Any], role: Role, handler: Any, summary: str, **more: Any) -> Endpoint:
    more = {
        "tag": "jobs",
        "parameters": JOB_NAMES,
        "errors": (InvalidInput, UnknownJob),
        "scoped": Scoping.JOB,
        **more,
    }
    return Endpoint(route, role, handler, summary, **more)


CHANGES = (InvalidInput, UnknownJob, Conflict)

ENDPOINTS = (
    job_row(
        LIST_JOBS,
        Role.VIEWER,
        list_jobs,
        "List jobs",
        errors=(InvalidInput,),
        scoped=Scoping.FILTERED,
    ),
    job_row(GET_JOB, Role.VIEWER, show_job, "Show a job and its newest runs"),
    job_row(
        SET_JOB,
        Role.OPERATOR,
        put_job,
        "Check and store a job",
        errors=(InvalidJob, *CHANGES),
        scoped=Scoping.MADE,
        notes="The document of docs/reference/jobs.md as JSON. All problems are reported "
        "together, one per line of the detail. With `If-Match`, or a field `revision`, a job that "
        "has changed meanwhile is not replaced (409); revision 0 means that it must not exist.",
    ),
    job_row(
        DELETE_JOB,
        Role.OPERATOR,
        delete_job,
        "Delete a job",
        errors=CHANGES,
        notes="Its history stays; storing it again restores it.",
    ),
    job_row(
        LIST_JOB_REVISIONS,
        Role.VIEWER,
        job_revisions,
        "List the revisions of a job",
    ),
    job_row(
        COMPARE_JOB_REVISIONS,
        Role.OPERATOR,
        diff_job,
        "Show the difference between two revisions",
    ),
    job_row(
        RUN_JOB,
        Role.OPERATOR,
        run_job,
        "Start a run of a job",
        errors=CHANGES,
        notes="For external schedulers: calls with the same `Idempotency-Key` start one run, "
        "at any time and on any center.",
    ),
    job_row(
        CHANGE_JOB,
        Role.OPERATOR,
        change_job,
        "Pause, resume, stop or restart the runs of a job",
        errors=CHANGES,
        parameters={**JOB_NAMES, "verb": {"enum": list(VERBS)}},
    ),
)
