"""The fields of each resource that filters may use, with their types, words and help.

Read by `check.py`, by completion, by the reference page and by tests. It declares, nothing
else; what a field means in SQL is in `store/sql/filters`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import get_args

import msgspec

from skep.model.dispatch import DispatchKind
from skep.model.failures.failure_class import FailureClass
from skep.model.filter.fields import Field, FieldTable, FieldType
from skep.model.filter.states import AgentWord, JobKind, JobWord
from skep.model.jobs.fire import ON_THEIR_WAY, FireState
from skep.model.lane import Lane
from skep.model.states import FINAL_STATES, RequestState, RunState
from skep.wire.filter.record_tables import (
    DELIVERIES,
    FAILURE_GROUPS,
    HOSTS,
    NOTICES,
    OPERATIONS,
    SCHEDULES,
    SESSIONS,
    TOKENS,
    USERS,
)

_REQUEST_WORDS = tuple(state.name.lower() for state in RequestState)
_ENDED_REQUESTS = tuple(state.name.lower() for state in RequestState if state in FINAL_STATES)
_ENDED_RUNS = (RunState.FINISHED.value, RunState.CANCELLED.value)
_MOMENTS = ("2h", "2026-11-18", "2026-11-18T12:30Z")
_TIMES = (">2h", "2026-11-18", "2026-11-01..2026-11-18")


def _others(words: tuple[str, ...], without: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word for word in words if word not in without)


def _since(of: str, what: str, *, indexed: bool = False) -> tuple[Field, Field]:
    """The pair `since` and `until`, bounds of one time."""
    since, until = f"{what} at or after this moment.", f"{what} before this moment."
    return (
        Field("since", FieldType.SINCE, since, _MOMENTS, indexed=indexed, of=of),
        Field("until", FieldType.UNTIL, until, _MOMENTS, indexed=indexed, of=of),
    )


def _values(kind: type[StrEnum]) -> tuple[str, ...]:
    return tuple(member.value for member in kind)


_LABEL = Field("label", FieldType.LABEL, "A label, by name or by name and value.", ("eu", "team=a"))
_JOB = Field("job", FieldType.NAME, "Name of the job.", ("quotes", "shop-*"))
_RUN = Field("run", FieldType.NAME, "Name of the run.", ("quotes-0a1b2c", "quotes-*"))

REQUESTS = FieldTable(
    "requests",
    (
        Field("id", FieldType.INTEGER, "Number of the request.", ("42", "100..200"), indexed=True),
        Field(
            "state",
            FieldType.WORD,
            "State of the request.",
            ("dead", "waiting,delayed", "open"),
            words=_REQUEST_WORDS,
            groups={
                "open": _others(_REQUEST_WORDS, _ENDED_REQUESTS),
                "ended": _ENDED_REQUESTS,
                "failed": ("dead",),
            },
        ),
        Field("run", FieldType.NAME, _RUN.help, _RUN.examples, indexed=True),
        _JOB,
        Field("host", FieldType.HOST, "Host of the URI.", ("example.com", "*.example.com")),
        Field(
            "uri",
            FieldType.TEXT,
            "The URI.",
            ("/products/", "https://*", "*.pdf"),
            aliases=("url",),
        ),
        Field(
            "error",
            FieldType.WORD,
            "Failure class of a dead request, or of the last attempt at another.",
            ("timeout", "network,blocked"),
            words=_values(FailureClass),
            aliases=("failure",),
        ),
        Field(
            "status",
            FieldType.INTEGER,
            "HTTP status of a dead request, or of the last attempt at another.",
            ("404", "500..599", ">=400"),
        ),
        Field(
            "group",
            FieldType.GROUP,
            "Failure group of a dead request; without `@host` at every host.",
            ("0a1b2c3d4e5f@example.com", "0a1b2c3d4e5f"),
            aliases=("fingerprint",),
        ),
        Field("detail", FieldType.TEXT, "Detail of the last attempt.", ('"connection reset"',)),
        Field("agent", FieldType.NAME, "Agent of the last attempt.", ("attic", "rack1-*")),
        Field("failures", FieldType.INTEGER, "Number of failed attempts.", (">2", "0")),
        Field("priority", FieldType.INTEGER, "From -1 (highest) to 5 (lowest).", ("-1", "<3")),
        Field("block", FieldType.INTEGER, "Number of the block that it is in.", ("17",)),
        Field("duration", FieldType.DURATION, "Time of the last attempt.", (">30s", "1s..5s")),
        Field("size", FieldType.SIZE, "Bytes received by the last attempt.", (">1MB", "<=10kB")),
        Field("created", FieldType.TIME, "When the request was accepted.", _TIMES),
        Field("died", FieldType.TIME, "When a dead request was given up.", _TIMES),
        *_since("created", "Accepted"),
        Field(_LABEL.name, _LABEL.type, "A label of the run.", _LABEL.examples),
    ),
    text=("uri", "detail"),
)

RUNS = FieldTable(
    "runs",
    (
        Field(
            "id", FieldType.NAME, _RUN.help, _RUN.examples, indexed=True, aliases=("run", "name")
        ),
        msgspec.structs.replace(_JOB, indexed=True),
        Field(
            "state",
            FieldType.WORD,
            "State of the run.",
            ("running", "failed,paused", "open"),
            indexed=True,
            words=_values(RunState),
            groups={"open": _others(_values(RunState), _ENDED_RUNS), "ended": _ENDED_RUNS},
        ),
        msgspec.structs.replace(_LABEL, indexed=True),
        Field("reason", FieldType.TEXT, "Why it is in its state.", ("disk", '"time limit"')),
        Field("requests", FieldType.INTEGER, "Number of accepted requests.", (">1000", "0")),
        Field("dead", FieldType.INTEGER, "Number of dead requests.", (">0", "10..100")),
        Field(
            "duration",
            FieldType.DURATION,
            "From its start until it ended, or until now.",
            (">1h", "<30s"),
        ),
        Field("created", FieldType.TIME, "When it was made.", _TIMES, indexed=True),
        Field("changed", FieldType.TIME, "When it came into its state.", _TIMES),
        *_since("created", "Made", indexed=True),
    ),
    text=("id", "job", "reason"),
)

JOBS = FieldTable(
    "jobs",
    (
        Field(
            "name", FieldType.NAME, _JOB.help, _JOB.examples, indexed=True, aliases=("job", "id")
        ),
        Field(
            "state",
            FieldType.WORD,
            "Whether it may start runs, or is deleted.",
            ("enabled", "disabled,deleted"),
            indexed=True,
            words=_values(JobWord),
        ),
        msgspec.structs.replace(_LABEL, indexed=True),
        Field(
            "kind",
            FieldType.WORD,
            "What it runs.",
            ("spider", "requests,app"),
            words=_values(JobKind),
        ),
        Field("downloader", FieldType.NAME, "Kind of its downloader.", ("http", "curl")),
        Field("customer", FieldType.TEXT, "For whom it collects.", ("acme",)),
        Field("note", FieldType.TEXT, "Its note.", ("weekly",)),
        Field("author", FieldType.TEXT, "Author of the newest revision.", ("anna",)),
        Field("revision", FieldType.INTEGER, "Number of the newest revision.", (">10",)),
        Field("created", FieldType.TIME, "When it was made.", _TIMES),
        Field("changed", FieldType.TIME, "When it was changed last.", _TIMES),
        *_since("changed", "Changed"),
    ),
    text=("name", "customer", "note"),
)

AGENTS = FieldTable(
    "agents",
    (
        Field("id", FieldType.NAME, "Id of the agent.", ("attic", "rack1-*"), indexed=True),
        Field("name", FieldType.NAME, "Name shown to people.", ("attic", "rack1-*")),
        Field(
            "state",
            FieldType.WORD,
            "Whether it is alive, and what a person said.",
            ("alive", "dead,draining"),
            words=_values(AgentWord),
        ),
        Field("group", FieldType.NAME, "Group for placement.", ("default", "eu-*")),
        _LABEL,
        Field("kind", FieldType.NAME, "A downloader kind that it offers.", ("http", "browser")),
        Field("version", FieldType.NAME, "Its version of Skep.", ("1.2.*",)),
        Field("address", FieldType.NAME, "Its address.", ("10.0.*",)),
        Field("os", FieldType.TEXT, "Its operating system.", ("debian",)),
        Field("seen", FieldType.TIME, "When its last heartbeat came.", _TIMES),
        Field("registered", FieldType.TIME, "When it registered last.", _TIMES),
        *_since("seen", "Seen"),
    ),
    text=("id", "name", "group"),
)

AUDIT = FieldTable(
    "audit",
    (
        Field(
            "user",
            FieldType.NAME,
            "Who did it.",
            ("anna", "token:*"),
            indexed=True,
            aliases=("who",),
        ),
        Field("action", FieldType.NAME, "Operation id of the call.", ("delete_job", "*_run")),
        Field(
            "object", FieldType.NAME, "What it was done to.", ("job:quotes", "run:*"), indexed=True
        ),
        Field(
            "outcome",
            FieldType.WORD,
            "Whether it was done.",
            ("refused", "failed"),
            words=("done", "refused", "failed"),
        ),
        Field("address", FieldType.NAME, "From where it was asked for.", ("10.0.*",)),
        Field("at", FieldType.TIME, "When it was done.", _TIMES, indexed=True),
        *_since("at", "Done", indexed=True),
    ),
    text=("user", "action", "object"),
)

FIRES = FieldTable(
    "fires",
    (
        msgspec.structs.replace(_JOB, indexed=True),
        Field(
            "state",
            FieldType.WORD,
            "What became of the due time.",
            ("missed,late", "fired"),
            words=_values(FireState),
            groups={"open": tuple(state.value for state in ON_THEIR_WAY)},
        ),
        _RUN,
        Field("center", FieldType.NAME, "Center that decided it.", ("center-1",)),
        Field("reason", FieldType.TEXT, "Why it has its state.", ("overlap",)),
        Field("due", FieldType.TIME, "When it was due.", _TIMES, indexed=True),
        *_since("due", "Due", indexed=True),
    ),
    text=("job", "reason"),
)

DISPATCHES = FieldTable(
    "dispatches",
    (
        Field(
            "kind",
            FieldType.WORD,
            "What happened.",
            ("alert", "failed"),
            words=get_args(DispatchKind),
        ),
        msgspec.structs.replace(_RUN, indexed=True),
        _JOB,
        Field(
            "lane",
            FieldType.WORD,
            "The lane.",
            ("super", "high,mid"),
            words=tuple(lane.label for lane in Lane),
        ),
        Field("reason", FieldType.TEXT, "Why.", ("full",)),
        Field("center", FieldType.NAME, "The center.", ("center-1",)),
        Field("size", FieldType.INTEGER, "Number of requests.", (">100",)),
        Field("at", FieldType.TIME, "When it happened.", _TIMES, indexed=True),
        *_since("at", "Dispatched", indexed=True),
    ),
    text=("job", "run", "reason"),
)

ALERTS = FieldTable(
    "alerts",
    (
        Field("kind", FieldType.NAME, "Kind of the alert.", ("lane_full", "disk*")),
        Field("subject", FieldType.NAME, "What it is about.", ("super", "attic")),
        Field("detail", FieldType.TEXT, "What it says.", ("full",)),
        Field("times", FieldType.INTEGER, "How often it was raised.", (">10",)),
        Field("first", FieldType.TIME, "When it was raised first.", _TIMES),
        Field("last", FieldType.TIME, "When it was raised last.", _TIMES),
        *_since("last", "Raised"),
    ),
    text=("kind", "subject", "detail"),
)

LOGS = FieldTable(
    "logs",
    (
        Field(
            "level",
            FieldType.WORD,
            "Level of the line.",
            ("error", "warning,error"),
            words=("debug", "info", "warning", "error", "critical"),
        ),
        Field(
            "source",
            FieldType.WORD,
            "What wrote the line.",
            ("spider", "center,agent"),
            words=("center", "agent", "spider", "generator", "downloader", "app"),
        ),
        _RUN,
        _JOB,
        Field("agent", FieldType.NAME, "Agent that it came from.", ("attic",)),
        Field("line", FieldType.TEXT, "Text of the line.", ("refused",)),
        Field("at", FieldType.TIME, "When it was written.", _TIMES),
        *_since("at", "Written"),
    ),
    text=("line",),
)

#: Every resource that can be filtered, by its name in the API.
TABLES = {
    table.resource: table
    for table in (
        *(REQUESTS, RUNS, JOBS, AGENTS, AUDIT, FIRES, DISPATCHES, ALERTS, LOGS),
        *(HOSTS, TOKENS, DELIVERIES, NOTICES, SCHEDULES),
        *(FAILURE_GROUPS, OPERATIONS, USERS, SESSIONS),
    )
}
