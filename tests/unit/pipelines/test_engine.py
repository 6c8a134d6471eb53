"""The engine: one outcome per message, stage by stage, and outcomes that add up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.errors import Unavailable
from skep.pipelines.definitions.document_check import PipelineChecker
from skep.pipelines.engine.engine import Engine, Ports
from skep.pipelines.engine.message import Arrived
from skep.pipelines.engine.outcomes import Kind, Outcome, Stage
from skep.pipelines.engine.ports import (
    Abandon,
    Answer,
    Delay,
    Failed,
    Found,
    OutputRecord,
    Refusal,
)
from skep.testing.clock import ManualClock

NOW = 1_700_000_000.0


class Outside:
    """Stores, queries and outputs of a test, with everything that was asked of them."""

    def __init__(self) -> None:
        self.entries: dict[str, dict[str, Any]] = {}
        self.answers: dict[str, Answer] = {}
        self.refusals: dict[str, Refusal] = {}
        self.down: set[str] = set()
        self.calls: list[tuple[str, int]] = []
        self.written: list[tuple[str, OutputRecord]] = []

    def _call(self, name: str, size: int) -> None:
        self.calls.append((name, size))
        if name in self.down:
            raise Unavailable(f"{name} is down")

    async def get(self, store: str, keys: Sequence[str]) -> Mapping[str, Any]:
        self._call(store, len(keys))
        known = self.entries.get(store, {})
        return {key: known[key] for key in keys if key in known}

    async def put(self, store: str, entries: Mapping[str, str], ttl: float) -> None:
        self._call(f"put {store} {ttl:.0f}", len(entries))
        self.entries.setdefault(store, {}).update(entries)

    async def ask(self, kind: str, name: str, asked: Sequence[dict[str, Any]]) -> Sequence[Answer]:
        self._call(f"{kind} {name}", len(asked))
        return [self.answers.get(str(one.get("id")), Found({"n": 1, "m": 2})) for one in asked]

    async def write(self, target: str, records: Sequence[OutputRecord]) -> Sequence[Refusal | None]:
        self._call(target, len(records))
        verdicts = [self.refusals.get(str(record.values.get("id"))) for record in records]
        pairs = zip(records, verdicts, strict=True)
        self.written += [(target, record) for record, verdict in pairs if verdict is None]
        return verdicts


class Ground:
    """An engine on an outside."""

    def __init__(self, **parts: Any) -> None:
        self.outside = Outside()
        self.clock = ManualClock(NOW)
        outputs = [{"target": "a", "values": {"id": "=id"}}]
        document = {"name": "p", "inputs": "in", "operations": [{"outputs": outputs}], **parts}
        made = PipelineChecker(self.clock).check(document)
        ports = Ports(self.outside, self.outside, self.outside)
        self.engine = Engine(made, ports, self.clock, Random(1))

    async def send(self, *messages: Any, **more: Any) -> list[Outcome]:
        bodies = [one if isinstance(one, bytes) else msgspec.json.encode(one) for one in messages]
        outcomes = await self.engine.process([Arrived(body, "in", **more) for body in bodies])
        assert self.engine.tally.balanced
        return outcomes

    def ids(self, target: str) -> list[Any]:
        return [record.values["id"] for name, record in self.outside.written if name == target]


def kinds(outcomes: Sequence[Outcome]) -> list[str]:
    return [str(one.kind) for one in outcomes]


async def test_the_way_of_a_message() -> None:
    """S3: filter, extras, operations with conditions, outputs with fields, values and ttl."""
    ground = Ground(
        filter="id > 0",
        extras=[{"field": "x", "server": "s", "args": {"map": {"id": "=id"}, "keys": ["n"]}}],
        operations=[
            {"when": "id < 3", "outputs": [{"target": "a", "values": {"id": "=id", "x": "=x"}}]},
            {
                "outputs": [
                    {
                        "target": "b",
                        "key": "k{{ id }}",
                        "values": {"id": "=id", "is": "constant"},
                        "fields": [{"name": "seen:{{ id }}", "value": "=id * 2", "ttl": 60}],
                    },
                    {"target": "c", "when": "id == 2"},
                ]
            },
        ],
    )
    outcomes = await ground.send({"id": 1}, {"id": 0}, {"id": 2}, {"id": 3})
    assert kinds(outcomes) == ["out", "dropped", "out", "out"]
    assert outcomes[1] == Outcome(Kind.DROPPED, Stage.FILTER, "filter")
    assert ground.outside.written == [
        ("a", OutputRecord({"id": 1, "x": {"n": 1}})),
        ("a", OutputRecord({"id": 2, "x": {"n": 1}})),
        ("b", OutputRecord({"id": 1, "is": "constant", "seen:1": 2}, "k1", {"seen:1": 60})),
        ("b", OutputRecord({"id": 2, "is": "constant", "seen:2": 4}, "k2", {"seen:2": 60})),
        ("b", OutputRecord({"id": 3, "is": "constant", "seen:3": 6}, "k3", {"seen:3": 60})),
        ("c", OutputRecord({"id": 2, "x": {"n": 1}})),
    ]
    assert ground.outside.calls == [("server s", 3), ("a", 2), ("b", 3), ("c", 1)]


async def test_a_filter_that_cannot_be_evaluated_says_why() -> None:
    ground = Ground(filter="id >= 5")
    outcomes = await ground.send({"id": 1}, {"id": "x"}, {}, {"id": 9})
    assert [one.reason for one in outcomes] == [
        "filter",
        "'>=' not supported between instances of 'str' and 'int'",
        "the field 'id' is absent",
        "",
    ]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not JSON"),
        (b"<html>", "not JSON"),
        (b"[1]", "not an object"),
        (b"5", "not an object"),
        (b"null", "not an object"),
        (b'{"id": NaN}', "not JSON"),
        (b'{"id": "\\ud800"}', "not JSON"),
        (b'{"id": "\xff"}', "not JSON"),
        (b'{"id": 1', "not JSON"),
        (b'{"id": ' + b"9" * 5000 + b"}", "not JSON"),
        (b'{"id": ' + b"[" * 10_000 + b"]" * 10_000 + b"}", "nested deeper"),
        (b'{"id": ' + b"[" * 70 + b"]" * 70 + b"}", "nested deeper"),
        (b'{"a": ' * 10_000 + b"1" + b"}" * 10_000, "nested deeper"),
        (b'{"id": "' + b"x" * 2**20 + b'"}', "the limit is 1048576"),
        (b"[" * 2_000_000, "the limit is 1048576"),
    ],
    ids=lambda value: repr(value)[:30],
)
async def test_a_message_that_cannot_be_read_is_dead_and_the_others_flow(
    body: bytes, reason: str
) -> None:
    """Bad input: one outcome with its reason."""
    ground = Ground()
    first, bad, last = await ground.send({"id": 1}, body, {"id": 2})
    assert (bad.kind, bad.stage) == (Kind.DEAD, Stage.PARSE)
    assert reason in bad.reason
    assert kinds([first, last]) == ["out", "out"]
    assert ground.ids("a") == [1, 2]


async def test_the_last_of_two_equal_keys_counts() -> None:
    ground = Ground()
    assert kinds(await ground.send(b'{"id": 1, "id": 2}')) == ["out"]
    assert ground.ids("a") == [2]


async def test_extras_answer_found_delay_abandon_or_error() -> None:
    """S3: the answer fills the field, delays, abandons, or is an error."""
    part = {"field": "x", "method": "m", "args": {"map": {"id": "=id"}}}
    ground = Ground(extras=[part], retry={"first": 10, "limit": 2})
    ground.outside.answers = {"2": Delay(30), "3": Abandon("no use"), "4": Failed("broken")}
    found = await ground.send({"id": 1}, {"id": 2}, {"id": 3}, {"id": 4})
    assert kinds(found) == ["out", "delayed", "dropped", "failed"]
    assert (found[1].due, found[1].errors) == (NOW + 30, 0)
    assert found[2].reason == "no use"
    assert found[3].errors == 1
    assert NOW + 5 <= found[3].due <= NOW + 10
    assert ground.ids("a") == [1]


async def test_one_question_per_batch_and_an_answer_for_its_period() -> None:
    part = {"field": "x", "server": "s", "args": {"map": {"id": "=id"}, "period": 60}}
    ground = Ground(extras=[part])
    await ground.send({"id": 1}, {"id": 1}, {"id": 2})
    await ground.send({"id": 1})
    assert [call for call in ground.outside.calls if call[0] == "server s"] == [("server s", 2)]
    ground.clock.advance(61)
    await ground.send({"id": 1})
    assert ground.outside.calls.count(("server s", 1)) == 1


async def test_arguments_that_cannot_be_made_are_dead() -> None:
    ground = Ground(extras=[{"field": "x", "server": "s", "args": {"map": {"id": "=id - 1"}}}])
    outcomes = await ground.send(b'{"id": %d}' % 10**30, {"id": "x"}, {"id": 1})
    assert kinds(outcomes) == ["out", "dead", "out"]
    assert outcomes[1].reason.startswith("arguments of x: unsupported operand")


async def test_a_message_cannot_bring_its_own_source_record() -> None:
    """The owner filter compares `trace`, which only the record of a store can fill."""
    record = {"store": "sources", "miss": "next"}
    ground = Ground(trace={"id": "utm", "record": record}, user_id="17")
    [outcome] = await ground.send({"utm": "t1", "trace": {"dmp_user_id": "17"}})
    assert (outcome.kind, outcome.stage) == (Kind.DROPPED, Stage.OWNER)


async def test_a_query_that_is_down_fails_its_messages_only() -> None:
    ground = Ground(extras=[{"field": "x", "server": "s", "when": "id > 1"}])
    ground.outside.down = {"server s"}
    outcomes = await ground.send({"id": 1}, {"id": 2})
    assert kinds(outcomes) == ["out", "failed"]
    assert outcomes[1].reason == "server s: server s is down"


TWO = [{"outputs": [{"target": name, "values": {"id": "=id"}}]} for name in ("a", "b")]


async def test_a_failed_output_is_retried_alone() -> None:
    """S6: the outputs that have accepted a message do not get it again."""
    ground = Ground(operations=TWO)
    ground.outside.down = {"b"}
    [outcome] = await ground.send({"id": 1})
    assert (outcome.kind, outcome.reason) == (Kind.FAILED, "output b: b is down")
    assert (ground.ids("a"), ground.ids("b")) == ([1], [])
    ground.outside.down = set()
    again = await ground.send({"id": 1}, errors=outcome.errors, tries=1, done=outcome.done)
    assert kinds(again) == ["out"]
    assert (ground.ids("a"), ground.ids("b")) == ([1], [1])


async def test_one_refused_record_does_not_hold_the_others() -> None:
    ground = Ground(operations=TWO, retry={"limit": 3})
    ground.outside.refusals = {"7": Refusal("too long", permanent=True), "8": Refusal("later")}
    outcomes = await ground.send(*({"id": number} for number in range(10)))
    assert kinds(outcomes) == ["out"] * 7 + ["dead", "failed", "out"]
    assert outcomes[7].reason == "output a: too long"
    assert len(ground.ids("a")) == 8


async def test_values_that_cannot_be_made_are_dead() -> None:
    ground = Ground(operations=[{"outputs": [{"target": "a", "key": "=missing"}]}])
    [outcome] = await ground.send({"id": 1})
    assert (outcome.kind, outcome.reason) == (Kind.DEAD, "values of a: the key is empty")
    ground = Ground(operations=[{"outputs": [{"target": "a", "values": {"id": "=id + 1"}}]}])
    [outcome] = await ground.send({"id": "x"})
    assert (outcome.kind, outcome.stage) == (Kind.DEAD, Stage.OPERATIONS)


@pytest.mark.parametrize(("rule", "kind"), [("drop", "dropped"), ("error", "failed")])
async def test_no_output(rule: str, kind: str) -> None:
    outputs = [{"target": "a", "when": "id > 5"}]
    ground = Ground(operations=[{"outputs": outputs}], on_no_output=rule)
    outcomes = await ground.send({"id": 1}, {"id": 9})
    assert kinds(outcomes) == [kind, "out"]
    assert outcomes[0].reason == "no output takes the message"


async def test_errors_end_in_dead() -> None:
    """S5: past its error limit or its expiry a message is dead."""
    ground = Ground(retry={"limit": 2, "first": 10, "most": 15, "expires": 100})
    ground.outside.down = {"a"}
    [first] = await ground.send({"id": 1})
    assert (first.kind, first.errors, first.expires) == (Kind.FAILED, 1, NOW + 100)
    [second] = await ground.send({"id": 1}, errors=1, tries=1, expires=first.expires)
    assert (second.kind, second.errors, second.expires) == (Kind.FAILED, 2, NOW + 100)
    assert NOW + 7.5 <= second.due <= NOW + 15
    [third] = await ground.send({"id": 1}, errors=2, tries=2)
    assert (third.kind, third.errors) == (Kind.DEAD, 3)
    [late] = await ground.send({"id": 1}, errors=1, expires=NOW + 1)
    assert (late.kind, late.reason) == (Kind.DEAD, "expired: output a: a is down")


TRACE: dict[str, Any] = {
    "id": "utm",
    "lookups": [
        {"name": "table", "store": "sql", "key": "=order", "miss": "drop"},
        {"name": "user", "store": "redis", "key": "u:{{ user }}"},
        {"name": "ip", "store": "visits", "key": "{{ ip }} {{ ua }}"},
    ],
    "record": {"store": "sources", "key": "s:{{ trace_id }}"},
    "write_back": {
        "store": "redis", "key": "u:{{ user }}", "found_by": ["ip"], "window": 100, "ttl": 9,
        "event_time": "time",
    },
}  # fmt: skip


def traced() -> Ground:
    values = {"id": "=trace_id", "who": "=trace.who"}
    operations = [{"outputs": [{"target": "a", "values": values}]}]
    ground = Ground(trace=TRACE, user_id="17", operations=operations)
    ground.outside.entries = {
        "sql": {"o1": "t1"},
        "redis": {"u:ada": "t2"},
        "visits": {"1.1.1.1 x": "t3"},
        "sources": {
            f"s:t{n}": {"who": n, "dmp_user_id": 17, "time": 1000} for n in range(1, 5)
        } | {"s:t5": {"dmp_user_id": "99"}},
    }  # fmt: skip
    return ground


async def test_trace_finds_the_source_by_each_way() -> None:
    """S3: the message, the table, the key, IP and user agent; one round trip per store."""
    ground = traced()
    outcomes = await ground.send(
        {"utm": "t4"},
        {"order": "o1"},
        {"user": "ada"},
        {"ip": "1.1.1.1", "ua": "x"},
        {"order": "unknown"},
        {"user": "bob"},
        {"utm": "t5"},
        {"utm": "t9"},
    )
    assert ground.ids("a") == ["t4", "t1", "t2", "t3"]
    assert [(one.kind, one.stage, one.reason) for one in outcomes[4:]] == [
        (Kind.DROPPED, Stage.TRACE, "not found by table"),
        (Kind.DROPPED, Stage.TRACE, "no tracking id"),
        (Kind.DROPPED, Stage.OWNER, "another owner"),
        (Kind.DROPPED, Stage.TRACE, "no source record in sources"),
    ]
    assert ground.outside.calls == [
        ("sql", 2), ("redis", 2), ("visits", 1), ("sources", 6), ("a", 4),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("time", "stored"), [(1000, True), (1100, True), (1101, False), (999, False), (None, False)]
)
async def test_trace_stores_what_ip_and_user_agent_found(time: float | None, stored: bool) -> None:
    """S3: only with a mapping key, found by IP and user agent, inside the attribution window."""
    ground = traced()
    await ground.send({"ip": "1.1.1.1", "ua": "x", "user": "eve", "time": time})
    assert (ground.outside.entries["redis"].get("u:eve") == "t3") is stored
    assert (("put redis 9", 1) in ground.outside.calls) is stored
    ground.outside.calls.clear()
    await ground.send({"user": "ada", "time": 1000}, {"ip": "1.1.1.1", "ua": "x", "time": 1000})
    assert not [call for call in ground.outside.calls if call[0].startswith("put")]


@pytest.mark.parametrize("store", ["sql", "redis", "visits", "sources"])
async def test_a_store_that_is_down_fails_its_messages_only(store: str) -> None:
    ground = traced()
    ground.outside.down = {store}
    ways = {
        "sql": {"order": "o1"},
        "redis": {"user": "ada"},
        "visits": {"ip": "1.1.1.1", "ua": "x"},
    }
    outcomes = await ground.send(ways.get(store, {"utm": "t4"}), {"utm": ""})
    assert kinds(outcomes) == ["failed", "dropped"]
    assert outcomes[0].reason == f"store {store}: {store} is down"


async def test_a_miss_can_delay() -> None:
    lookups = [{"store": "redis", "key": "=user", "miss": "delay"}]
    ground = Ground(trace={"id": "utm", "lookups": lookups}, retry={"first": 8})
    [outcome] = await ground.send({"user": "ada"})
    assert (outcome.kind, outcome.errors) == (Kind.DELAYED, 0)
    assert NOW + 4 <= outcome.due <= NOW + 8


async def test_a_message_of_an_unknown_input_is_dead() -> None:
    ground = Ground()
    [outcome] = await ground.engine.process([Arrived(b"{}", "gone")])
    assert outcome.reason == "the pipeline has no input 'gone'"


_scalars = st.one_of(st.none(), st.integers(-3, 9), st.text(max_size=3), st.booleans())
_bodies = st.one_of(
    st.binary(max_size=20),
    st.dictionaries(
        st.sampled_from(["id", "utm", "user", "ip", "ua", "order", "time"]),
        st.one_of(_scalars, st.lists(_scalars, max_size=2)),
    ).map(msgspec.json.encode),
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(_bodies, max_size=12), st.sets(st.sampled_from(["sql", "sources", "a", "server s"]))
)
async def test_outcomes_add_up(bodies: list[bytes], down: set[str]) -> None:
    """S6: every message has exactly one outcome, whatever arrives and whatever is down."""
    ground = Ground(
        filter="id != 3",
        trace=TRACE,
        extras=[{"field": "x", "server": "s", "args": {"map": {"id": "=id"}}}],
        operations=TWO,
    )
    ground.outside.down = down
    ground.outside.answers = {"1": Delay(5), "2": Failed("x"), "4": Abandon("y")}
    ground.outside.entries = {"sources": {"s:t1": {"time": 1}}, "redis": {"u:1": "t1"}}
    outcomes = await ground.send(*bodies)
    assert len(outcomes) == len(bodies)
    assert ground.engine.tally.kinds.total() == ground.engine.tally.taken == len(bodies)
    written = {target: len(ground.ids(target)) for target in ("a", "b")}
    assert written["a"] <= len(bodies)
    assert sum(one.kind is Kind.OUT for one in outcomes) <= min(written.values())
