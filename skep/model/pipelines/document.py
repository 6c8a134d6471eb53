"""A pipeline as a document: where messages come from, what happens to them, where they go. Pure
data.

A text that is called an expression or a value is compiled by `skep/pipelines`, never here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from skep.model.labels import Labels
from skep.model.message_bounds import Texts

#: Names of pipelines and of what they refer to: inputs, stores, servers, outputs.
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,45}$(?!\n)"
NAME_WORDS = "1 to 46 letters, digits, `.`, `_` and `-`, the first one a letter or digit"
Name = Annotated[str, Meta(pattern=NAME, description=NAME_WORDS)]
#: An expression; the compiler checks its own limits.
Condition = Annotated[str, Meta(max_length=4000)]
FieldName = Annotated[str, Meta(min_length=1, max_length=200)]
Seconds = Annotated[float, Meta(ge=0, le=315_360_000)]
#: `file.py:function` in the folder for jobs.
Function = Annotated[str, Meta(max_length=500, pattern=r"^(?!/)[^\0:]+\.py:[A-Za-z_]\w*$(?!\n)")]
Outcome = Literal["out", "dropped", "delayed", "failed", "dead"]
Miss = Literal["next", "drop", "delay"]


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of the document: an unknown field is an error, a default is left out."""


class ParsePart(_Part, frozen=True):
    """How the bytes of a message become fields."""

    #: `json`, `csv`, `regex`, `logfmt` or `msgpack`.
    kind: Literal["json", "csv", "regex", "logfmt", "msgpack"] = "json"
    #: For `csv`: names of the columns, in order.
    columns: Annotated[tuple[FieldName, ...], Meta(max_length=1000)] = ()
    #: For `csv`: the character between two columns.
    separator: Annotated[str, Meta(min_length=1, max_length=1)] = ","
    #: For `regex`: an RE2 pattern with named groups, which become fields.
    pattern: Annotated[str, Meta(max_length=500)] = ""
    #: Fields of `common`: name -> value.
    common: Annotated[dict[FieldName, Any], Meta(max_length=200)] = msgspec.field(
        default_factory=dict
    )
    #: Maximum bytes of a message.
    max_bytes: Annotated[int, Meta(ge=1, le=64 * 2**20)] = 2**20


class InputPart(_Part, frozen=True):
    """A source of messages, by the name under which it is defined."""

    #: The name.
    name: Name
    #: How its messages are parsed; default: `parse` of the pipeline.
    parse: ParsePart | None = None
    #: Where a new pipeline begins: `earliest`, `latest`, an ISO 8601 time or a position.
    start: Annotated[str, Meta(min_length=1, max_length=200)] = "earliest"


class LookupPart(_Part, frozen=True):
    """One way to find the tracking id of a message."""

    #: The store that is asked.
    store: Name
    #: The key, as a value; the look-up is skipped when it is null or empty.
    key: Annotated[str, Meta(min_length=1, max_length=4000)]
    #: Name for `write_back.found_by` and for figures; default: the name of the store.
    name: Annotated[str, Meta(max_length=46)] = ""
    #: What a miss means: the `next` look-up, `drop` or `delay` the message.
    miss: Miss = "next"


class RecordPart(_Part, frozen=True):
    """Where the source record of a tracking id is read; it becomes `trace`."""

    #: The store that is asked.
    store: Name
    #: The key, as a value; `trace_id` is the tracking id. Default: the id.
    key: Annotated[str, Meta(min_length=1, max_length=4000)] = "=trace_id"
    #: What a miss means; `next`: the message continues without a record.
    miss: Miss = "drop"


class WriteBackPart(_Part, frozen=True):
    """Stores key -> tracking id, so that the next message of the same user is found by its key."""

    #: The store that is written.
    store: Name
    #: The key, as a value; nothing is stored when it is null or empty.
    key: Annotated[str, Meta(min_length=1, max_length=4000)]
    #: Look-ups whose result is stored; default: the last one.
    found_by: Annotated[tuple[str, ...], Meta(max_length=50)] = ()
    #: Seconds between the source and the event in which the result is stored; 0 = always.
    window: Seconds = 0.0
    #: Expression for the time of the event, in seconds since 1970.
    event_time: Condition = "common.time"
    #: Expression for the time of the source.
    source_time: Condition = "trace.time"
    #: Seconds that the entry is kept; 0 = without limit.
    ttl: Seconds = 0.0


class TracePart(_Part, frozen=True):
    """Finds the source of a message: its tracking id, then the record of the id."""

    #: Expression for an id in the message itself; the look-ups are used when it is null or empty.
    id: Condition = "common.utm_id"
    #: Ways to find the id, in order.
    lookups: Annotated[tuple[LookupPart, ...], Meta(max_length=20)] = ()
    #: The source record of the id.
    record: RecordPart | None = None
    #: What is stored for later messages.
    write_back: WriteBackPart | None = None


class ExtraArguments(_Part, frozen=True):
    """What a query gets, and how long its answer is valid."""

    #: Argument -> value.
    map: Annotated[dict[FieldName, Any], Meta(max_length=200)] = msgspec.field(default_factory=dict)
    #: Fields of the answer that are kept; default: all.
    keys: Annotated[tuple[FieldName, ...], Meta(max_length=200)] = ()
    #: Seconds that an answer is reused for the same arguments; 0 = within one batch only.
    period: Seconds = 0.0


class ExtraPart(_Part, frozen=True):
    """A field that is filled by a query: by exactly one of `server`, `method` and `func`."""

    #: The field of the message that gets the answer.
    field: FieldName
    #: Name of a query server.
    server: Annotated[str, Meta(max_length=46)] = ""
    #: Name of a method that comes with Skep.
    method: Annotated[str, Meta(max_length=46)] = ""
    #: User code.
    func: Function | None = None
    #: What the query gets.
    args: ExtraArguments = ExtraArguments()
    #: Only messages for which this is true are asked about.
    when: Condition = ""


class OutputField(_Part, frozen=True):
    """One field that an output writes."""

    #: Name, as a value: the key in Redis, the column in SQL.
    name: Annotated[str, Meta(min_length=1, max_length=4000)]
    #: Its value.
    value: Any
    #: Seconds that it is kept, where the output supports it; 0 = without limit.
    ttl: Seconds = 0.0


class OutputPart(_Part, frozen=True):
    """One place to which a message goes."""

    #: The output, by the name under which it is defined.
    target: Name
    #: Fields with their own time to live.
    fields: Annotated[tuple[OutputField, ...], Meta(max_length=500)] = ()
    #: Field -> value. Without `fields` and `values`, the whole message is written.
    values: Annotated[dict[FieldName, Any], Meta(max_length=500)] = msgspec.field(
        default_factory=dict
    )
    #: Key of the message, as a value: a repeated message with a key is stored once.
    key: Annotated[str, Meta(max_length=4000)] = ""
    #: Only messages for which this is true are written.
    when: Condition = ""


class OperationPart(_Part, frozen=True):
    """Outputs that share a condition."""

    #: Where messages are written.
    outputs: Annotated[tuple[OutputPart, ...], Meta(min_length=1, max_length=50)]
    #: Only messages for which this is true are written.
    when: Condition = ""


class RetryPart(_Part, frozen=True):
    """When a message that failed or must wait is processed again."""

    #: Errors after which a message is dead.
    limit: Annotated[int, Meta(ge=0, le=1000)] = 5
    #: Seconds before the first retry; the delay doubles with each error.
    first: Annotated[float, Meta(gt=0, le=604_800)] = 1.0
    #: The longest delay, in seconds.
    most: Annotated[float, Meta(gt=0, le=2_592_000)] = 3600.0
    #: Seconds after which a waiting message is dead; 0 = never.
    expires: Seconds = 0.0


class BatchPart(_Part, frozen=True):
    """How many messages are processed together."""

    #: The largest number of messages.
    size: Annotated[int, Meta(ge=1, le=10_000)] = 500
    #: Seconds that an incomplete batch waits for more messages.
    linger: Annotated[float, Meta(ge=0, le=60)] = 0.1
    #: The largest part of a batch that may come from the pool.
    pool_share: Annotated[float, Meta(gt=0, le=1)] = 0.25


class PlacementPart(_Part, frozen=True):
    """Which agents may run the pipeline."""

    #: Agents of this group only.
    group: Annotated[str, Meta(max_length=64)] = ""
    #: Agents on this operating system only, such as `Linux`; case does not matter.
    os: Annotated[str, Meta(max_length=64)] = ""
    #: Agents with all of these labels only.
    labels: Texts = msgspec.field(default_factory=dict)


class ExpectedOutput(_Part, frozen=True):
    """What a test expects at one target. Only given fields are compared."""

    #: The output.
    target: Name
    #: Field -> expected value.
    values: dict[str, Any] = msgspec.field(default_factory=dict)
    #: Expected key; "" = not compared.
    key: str = ""


class CasePart(_Part, frozen=True):
    """One message of a test, and what becomes of it."""

    #: The message as data, or `raw`: its text as the input delivers it.
    message: Any = None
    #: The text of the message.
    raw: str | None = None
    #: The input that it comes from; default: the first.
    input: Annotated[str, Meta(max_length=46)] = ""
    #: `out`, `dropped`, `delayed`, `failed` or `dead`.
    outcome: Outcome = "out"
    #: The stage that decided: `parse`, `filter`, `trace`, `owner`, `extras`, `operations`.
    stage: Annotated[str, Meta(max_length=50)] = ""
    #: Text that the reason must contain.
    reason: Annotated[str, Meta(max_length=1000)] = ""
    #: Exactly these outputs; null = not compared.
    outputs: Annotated[tuple[ExpectedOutput, ...], Meta(max_length=100)] | None = None


class TestPart(_Part, frozen=True):
    """Messages, the answers of what is asked about them, and expected outcomes."""

    __test__ = False  # pytest takes it for a test otherwise

    #: Name for the report.
    name: Annotated[str, Meta(min_length=1, max_length=200)]
    #: Messages in order; each is a batch.
    cases: Annotated[tuple[CasePart, ...], Meta(min_length=1, max_length=1000)]
    #: The time of the test, in seconds since 1970.
    now: float = 1_700_000_000.0
    #: Store -> key -> value.
    stores: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    #: Name of a server, method or function -> its answer to every question, or one of
    #: `{delay: SECONDS}`, `{abandon: REASON}` and `{error: REASON}`.
    answers: dict[str, Any] = msgspec.field(default_factory=dict)
    #: Target -> the reason why it refuses every message.
    broken: dict[str, str] = msgspec.field(default_factory=dict)


class Pipeline(_Part, frozen=True):
    """Where messages come from, what happens to them, and where they go."""

    #: 1 to 46 letters, digits, `.`, `_` and `-`, the first one a letter or digit.
    name: Name
    #: A name, or a list of names or parts.
    inputs: Annotated[tuple[InputPart, ...], Meta(min_length=1, max_length=100)]
    #: What is done with each message.
    operations: Annotated[tuple[OperationPart, ...], Meta(min_length=1, max_length=100)]
    #: Description for users.
    note: Annotated[str, Meta(max_length=10_000)] = ""
    #: How messages are parsed: a kind, or a part.
    parse: ParsePart = ParsePart()
    #: Messages for which this is not true are dropped.
    filter: Condition = ""
    #: How the source of a message is found.
    trace: TracePart | None = None
    #: Only messages with this `trace.dmp_user_id` continue.
    user_id: Annotated[str, Meta(max_length=200)] = ""
    #: Fields that are filled by queries, in order.
    extras: Annotated[tuple[ExtraPart, ...], Meta(max_length=50)] = ()
    #: When failed and delayed messages are processed again.
    retry: RetryPart = RetryPart()
    #: How many messages are processed together.
    batch: BatchPart = BatchPart()
    #: What happens to a message that no output takes: `drop`, or `error`: it fails.
    on_no_output: Literal["drop", "error"] = "drop"
    #: Number of agents that run the pipeline, or `all`.
    nodes: Annotated[int, Meta(ge=1, le=10_000)] | Literal["all"] = 1
    #: Which agents may run it.
    placement: PlacementPart = PlacementPart()
    #: Names with values, such as `team: a`, for filters.
    labels: Labels = msgspec.field(default_factory=dict)
    #: Messages with their expected outcomes; `skep pipeline test` runs them.
    tests: Annotated[tuple[TestPart, ...], Meta(max_length=200)] = ()
