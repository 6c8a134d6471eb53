"""Fields of records that filters may use: hosts, tokens, deliveries, users, failure groups, ...

Read like `tables.py`; it declares, nothing else.
"""

from __future__ import annotations

from typing import get_args

from skep.model.failures.failure_class import FailureClass
from skep.model.filter.fields import Field, FieldTable, FieldType
from skep.model.monitoring.failure_groups import GroupState
from skep.model.operations import OPEN_OPERATIONS, OperationState

_MOMENTS = ("2h", "2026-11-18", "2026-11-18T12:30Z")
_TIMES = (">2h", "2026-11-18", "2026-11-01..2026-11-18")
_JOB = Field("job", FieldType.NAME, "Name of the job.", ("quotes", "shop-*"))
_RUN = Field("run", FieldType.NAME, "Name of the run.", ("quotes-0a1b2c", "quotes-*"))


def _since(of: str, what: str) -> tuple[Field, Field]:
    return (
        Field("since", FieldType.SINCE, f"{what} at or after this moment.", _MOMENTS, of=of),
        Field("until", FieldType.UNTIL, f"{what} before this moment.", _MOMENTS, of=of),
    )


HOSTS = FieldTable(
    "hosts",
    (
        Field("host", FieldType.HOST, "Name of the host.", ("example.com", "*.example.com")),
        Field("reason", FieldType.TEXT, "Why it is paused.", ("robots",)),
        Field("requests", FieldType.INTEGER, "Number of requests.", (">1000", "0")),
        Field("failed", FieldType.INTEGER, "Number of failed requests.", (">0",)),
        Field("refused", FieldType.INTEGER, "Number of refused requests.", (">0",)),
        Field("size", FieldType.SIZE, "Bytes received.", (">1MB",)),
        Field("run", FieldType.NAME, "Run whose block holds it.", _RUN.examples),
        Field("agent", FieldType.NAME, "Agent that holds it.", ("attic",)),
        Field("last", FieldType.TIME, "When it was contacted last.", _TIMES),
        *_since("last", "Contacted"),
    ),
    text=("host", "reason"),
)

TOKENS = FieldTable(
    "tokens",
    (
        Field("id", FieldType.NAME, "Id of the token.", ("0a1b2c3d4e5f6071", "0a1b*")),
        Field(
            "role",
            FieldType.WORD,
            "What it permits.",
            ("admin", "viewer,operator"),
            words=("viewer", "operator", "admin", "agent", "join"),
        ),
        Field("subject", FieldType.NAME, "The agent that it is for.", ("attic",)),
        Field("name", FieldType.TEXT, "Its name.", ("grafana",)),
        Field("used", FieldType.NAME, "The agent that joined with it.", ("attic", "*")),
        Field("created", FieldType.TIME, "When it was created.", _TIMES),
        Field("expires", FieldType.TIME, "When it expires.", ("<2026-12-01", "*")),
        *_since("created", "Created"),
    ),
    text=("name", "subject"),
)

DELIVERIES = FieldTable(
    "deliveries",
    (
        _RUN,
        _JOB,
        Field("sink", FieldType.NAME, "Key of the sink.", ("0a1b2c3d",)),
        Field("error", FieldType.TEXT, "The last error.", ("refused",)),
        Field("tries", FieldType.INTEGER, "Number of failed attempts in a row.", (">3",)),
        Field("changed", FieldType.TIME, "When it changed last.", _TIMES),
        *_since("changed", "Changed"),
    ),
    text=("run", "job", "error"),
)

NOTICES = FieldTable(
    "notices",
    (
        _RUN,
        _JOB,
        Field("kind", FieldType.NAME, "How it is sent.", ("webhook", "mail")),
        Field(
            "state",
            FieldType.WORD,
            "Whether it was sent.",
            ("waiting", "given-up"),
            words=("waiting", "told", "given-up"),
        ),
        Field("error", FieldType.TEXT, "The last error.", ("refused",)),
        Field("tries", FieldType.INTEGER, "Number of attempts.", (">3",)),
        Field("created", FieldType.TIME, "When it was made.", _TIMES),
        *_since("created", "Made"),
    ),
    text=("run", "job", "error"),
)

SCHEDULES = FieldTable(
    "schedules",
    (_JOB, Field("next", FieldType.TIME, "When it is checked next.", ("<2026-12-01", "*"))),
    text=("job",),
)

FAILURE_GROUPS = FieldTable(
    "failure-groups",
    (
        Field(
            "group",
            FieldType.GROUP,
            "Name of the group; without `@host` at every host.",
            ("0a1b2c3d4e5f@example.com", "0a1b2c3d4e5f"),
        ),
        Field("host", FieldType.HOST, "Host of the requests.", ("example.com", "*.example.com")),
        Field(
            "error",
            FieldType.WORD,
            "Failure class.",
            ("timeout", "network,blocked"),
            words=tuple(one.value for one in FailureClass),
            aliases=("failure",),
        ),
        Field("status", FieldType.INTEGER, "HTTP status.", ("404", "500..599")),
        Field("text", FieldType.TEXT, "The common part of the details.", ("refused",)),
        Field(
            "state",
            FieldType.WORD,
            "What a person decided.",
            ("open", "resolved,ignored"),
            words=get_args(GroupState),
        ),
        Field("dead", FieldType.INTEGER, "Requests that are dead now.", (">100",)),
        Field("died", FieldType.INTEGER, "Requests that died in all.", (">100",)),
        Field("note", FieldType.TEXT, "Its note.", ("ticket",)),
        Field("first", FieldType.TIME, "When a request died first.", _TIMES),
        Field("last", FieldType.TIME, "When a request died last.", _TIMES),
        *_since("last", "Seen"),
    ),
    text=("text", "host"),
)

OPERATIONS = FieldTable(
    "operations",
    (
        Field("id", FieldType.INTEGER, "Number of the operation.", ("7", ">100")),
        Field(
            "state",
            FieldType.WORD,
            "State of the operation.",
            ("working", "open"),
            words=tuple(state.value for state in OperationState),
            groups={"open": tuple(state.value for state in OPEN_OPERATIONS)},
        ),
        Field("resource", FieldType.NAME, "Kind of the objects.", ("requests", "runs")),
        Field("act", FieldType.NAME, "Name of the act.", ("retry", "cancel")),
        Field("user", FieldType.NAME, "Who started it.", ("anna", "token:*")),
        Field("matched", FieldType.INTEGER, "Objects in its set.", (">1000",)),
        Field("error", FieldType.TEXT, "Why it failed.", ("refused",)),
        Field("created", FieldType.TIME, "When it was started.", _TIMES),
        *_since("created", "Started"),
    ),
    text=("act", "user", "error"),
)

USERS = FieldTable(
    "users",
    (
        Field("name", FieldType.NAME, "Name of the user.", ("anna", "a*"), aliases=("user",)),
        Field(
            "role",
            FieldType.WORD,
            "Role of the user.",
            ("admin", "viewer,operator"),
            words=("viewer", "operator", "admin"),
        ),
        Field(
            "state",
            FieldType.WORD,
            "Whether the user may log in.",
            ("disabled",),
            words=("enabled", "disabled"),
        ),
        Field("group", FieldType.NAME, "A group that the user is in.", ("team-a", "team-*")),
        Field("created", FieldType.TIME, "When the user was created.", _TIMES),
        Field("login", FieldType.TIME, "When the user logged in last.", _TIMES),
        *_since("created", "Created"),
    ),
    text=("name",),
)

SESSIONS = FieldTable(
    "sessions",
    (
        Field("id", FieldType.NAME, "Id of the session.", ("0a1b2c3d4e5f6071", "0a1b*")),
        Field("user", FieldType.NAME, "Name of the user.", ("anna", "a*")),
        Field("address", FieldType.NAME, "From where the user logged in.", ("10.0.*",)),
        Field("client", FieldType.TEXT, "The program of the user.", ("firefox",)),
        Field("method", FieldType.NAME, "How the user logged in.", ("password", "link")),
        Field("created", FieldType.TIME, "When it began.", _TIMES),
        Field("seen", FieldType.TIME, "When it was used last.", _TIMES),
        *_since("created", "Begun"),
    ),
    text=("user", "client"),
)
