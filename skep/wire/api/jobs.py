"""Jobs, their revisions and their runs: types and routes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from skep.model.jobs.job import ARGUMENTS_LIMIT, Job, JobRun, KeptJob
from skep.model.message_bounds import FilterText, exact
from skep.model.run import Run
from skep.wire.api.caller import Resource
from skep.wire.api.listing import Listed, PageKey
from skep.wire.api.route import Route
from skep.wire.api.runs import Reached, Waiting

AUTHOR_LIMIT = 100
JobVerb = Literal["pause", "resume", "stop", "restart"]


class JobPage(msgspec.Struct):
    """Which jobs to list: `limit` of them after a name, with `deleted` the deleted too."""

    #: Maximum number of jobs.
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    #: Name of the last job that was read; empty = from the start.
    after: Annotated[str, Meta(max_length=100)] = ""
    #: List deleted jobs too.
    deleted: bool = False
    #: A filter, see the page on filters. With it, even an empty one, pages follow `page`.
    filter: FilterText | None = None
    #: `next_page` of the last answer; empty = the first page.
    page: PageKey = ""


class JobList(Listed):
    """Sorted by name; continue with `after=next` while there is one."""

    items: list[KeptJob]
    next: str | None = None


class Putting(msgspec.Struct):
    """`dry_run` only reports what would happen; `author` is who changes the job; without `test` the
    code of generators is not tested. `beside` lists jobs, separated by commas, that are stored with
    this one: its schedule can name them although they do not exist yet."""

    #: Report what would change, and change nothing.
    dry_run: bool = False
    #: Test the code of generators before the job is stored.
    test: bool = True
    #: Names of jobs that are stored with this one, separated by commas.
    beside: Annotated[str, Meta(max_length=8000)] = ""
    #: A refused dry run raises an alert, as storing the job would.
    alert: bool = False
    #: Name of the author, for the list of revisions.
    author: Annotated[str, Meta(max_length=AUTHOR_LIMIT)] = ""


class JobPut(msgspec.Struct):
    """The result for a document: created, changed or unchanged."""

    what: str
    job: Job
    #: Its revision; 0 after a dry run.
    revision: int
    #: What a dry run would change, as a unified diff.
    diff: str = ""


class JobView(msgspec.Struct):
    """A job with its newest runs and its next due times."""

    kept: KeptJob
    runs: list[JobRun]
    #: ISO 8601 in the zone of its schedule; empty while the job is disabled.
    next: list[str]


class RevisionLine(msgspec.Struct):
    """One change of a job."""

    revision: int
    at: float
    author: str
    what: str


class Revisions(msgspec.Struct):
    """Newest first."""

    items: list[RevisionLine]


class RevisionPage(msgspec.Struct):
    """The maximum number of revisions."""

    #: Maximum number of revisions, newest first.
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class Between(msgspec.Struct):
    """Two revisions; by default the newest and the one before it. 0 = an empty document."""

    #: The older revision; 0 = an empty document; default: the one before `new`.
    old: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    #: The newer revision; default: the newest.
    new: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None


class Diff(msgspec.Struct):
    """A unified diff of two documents in YAML; "" when they are the same."""

    diff: str


class Starting(msgspec.Struct):
    """With `generator` the run has only that generator; `arguments`, a JSON object, apply to this
    run only and override those of the job."""

    #: Run only this generator; empty = the whole job.
    generator: Annotated[str, Meta(max_length=100)] = ""
    #: Arguments of this run, as a JSON object; they override those of the job.
    arguments: Annotated[
        str, Meta(max_length=ARGUMENTS_LIMIT, extra_json_schema=exact(format="json"))
    ] = ""
    #: Labels of this run in addition to those of the job, as a JSON object of names with texts.
    labels: Annotated[
        str, Meta(max_length=ARGUMENTS_LIMIT, extra_json_schema=exact(format="json"))
    ] = ""


class Started(msgspec.Struct):
    """The run that the key, or this call, started."""

    run: str
    job: str


class Moved(msgspec.Struct):
    """Runs that were changed; with `started` the new one of a restart."""

    runs: list[Run]
    started: str | None = None
    #: Every process of these runs, and whether it has acknowledged.
    reached: list[Reached] = msgspec.field(default_factory=list)


LIST_JOBS = Route(
    "list_jobs",
    "GET",
    "/api/v1/jobs",
    JobList,
    asks=JobPage,
    seconds=60.0,
    query_example={"after": "authors"},
)
GET_JOB = Route("get_job", "GET", "/api/v1/jobs/{job}", JobView, seconds=60.0)
SET_JOB = Route(
    "set_job",
    "PUT",
    "/api/v1/jobs/{job}",
    JobPut,
    takes=dict[str, Any],
    asks=Putting,
    seconds=300.0,
    example={
        "requests": ["https://example.org/"],
        "settings": {"retries": 2},
        "schedule": {"every": 3600},
    },
)
DELETE_JOB = Route(
    "delete_job", "DELETE", "/api/v1/jobs/{job}", KeptJob, asks=Putting, seconds=60.0
)
LIST_JOB_REVISIONS = Route(
    "list_job_revisions",
    "GET",
    "/api/v1/jobs/{job}/revisions",
    Revisions,
    asks=RevisionPage,
    seconds=60.0,
)
COMPARE_JOB_REVISIONS = Route(
    "compare_job_revisions",
    "GET",
    "/api/v1/jobs/{job}/diff",
    Diff,
    asks=Between,
    seconds=60.0,
    query_example={"old": 0, "new": 1},
)
RUN_JOB = Route(
    "run_job",
    "POST",
    "/api/v1/jobs/{job}/run",
    Started,
    asks=Starting,
    seconds=60.0,
)
ENABLE_JOB = Route(
    "enable_job", "POST", "/api/v1/jobs/{job}/enable", JobPut, asks=Putting, seconds=60.0
)
DISABLE_JOB = Route(
    "disable_job", "POST", "/api/v1/jobs/{job}/disable", JobPut, asks=Putting, seconds=60.0
)
CHANGE_JOB = Route(
    "change_job",
    "POST",
    "/api/v1/jobs/{job}/{verb}",
    Moved,
    asks=Waiting,
    seconds=60.0,
)


class JobsClient(Resource):
    """Calls the routes of this file."""

    async def list(self, asks: JobPage | None = None) -> JobList:
        """List jobs."""
        return await self._caller.call(LIST_JOBS, asks=asks)

    async def show(self, job: str) -> JobView:
        """Show a job and its newest runs."""
        return await self._caller.call(GET_JOB, job)

    async def put(
        self,
        job: str,
        document: dict[str, Any],
        asks: Putting | None = None,
        revision: int | None = None,
    ) -> JobPut:
        """Check and keep a job; with `revision`, only in place of that one (else Conflict)."""
        headers = _if_match(revision)
        return await self._caller.call(SET_JOB, job, asks=asks, body=document, headers=headers)

    async def delete(
        self, job: str, asks: Putting | None = None, revision: int | None = None
    ) -> KeptJob:
        """Delete a job; with `revision`, only that one (else Conflict)."""
        return await self._caller.call(DELETE_JOB, job, asks=asks, headers=_if_match(revision))

    async def revisions(self, job: str, asks: RevisionPage | None = None) -> Revisions:
        """Who changed a job when."""
        return await self._caller.call(LIST_JOB_REVISIONS, job, asks=asks)

    async def diff(self, job: str, asks: Between | None = None) -> Diff:
        """The difference of two revisions."""
        return await self._caller.call(COMPARE_JOB_REVISIONS, job, asks=asks)

    async def run(self, job: str, asks: Starting | None = None, key: str = "") -> Started:
        """Start a run of a job. Calls with the same `key` start one run."""
        headers = {"Idempotency-Key": key} if key else None
        return await self._caller.call(RUN_JOB, job, asks=asks, headers=headers, starts_run=True)

    async def enable(self, job: str, asks: Putting | None = None) -> JobPut:
        """Turn a job on."""
        return await self._caller.call(ENABLE_JOB, job, asks=asks)

    async def disable(self, job: str, asks: Putting | None = None) -> JobPut:
        """Turn a job off."""
        return await self._caller.call(DISABLE_JOB, job, asks=asks)

    async def change(self, job: str, verb: JobVerb, asks: Waiting | None = None) -> Moved:
        """Pause, resume, stop or restart the runs of a job."""
        starts = verb == "restart"
        return await self._caller.call(CHANGE_JOB, job, verb, asks=asks, starts_run=starts)


def _if_match(revision: int | None) -> dict[str, str] | None:
    return None if revision is None else {"If-Match": str(revision)}
