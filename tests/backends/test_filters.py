"""Filters find the same rows in memory and on SQLite, PostgreSQL and MariaDB.

Random rows with awkward texts are searched with random filters. The facts of a row are made
from what was inserted, by rules that do not look at the SQL.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from random import Random
from typing import Any

import msgspec
import pytest
import pytest_asyncio
import sqlalchemy as sa

from skep.errors import InvalidFilter
from skep.model.failures.failure_class import FailureClass
from skep.model.failures.failure_fingerprint import group_name
from skep.model.filter.checked import CheckedFilter
from skep.model.filter.facts import Facts, agent_facts, job_facts, run_facts
from skep.model.filter.fields import FieldTable, FieldType
from skep.model.filter.matching import matches
from skep.model.filter.syntax import FilterTerm, FilterTree, FilterValue, Operator
from skep.model.fleet.agent import AgentView, Registration, Vitals
from skep.model.jobs.job import Downloader, Job, KeptJob, SpiderPart, bytes_of
from skep.model.run import Run, RunSettings
from skep.model.states import BlockState, RequestState, RunState
from skep.store.sql.engine.database import ACCEPTED, Tx
from skep.store.sql.filters.compile import CompiledFilter, compile_filter
from skep.store.sql.filters.indexes import INDEXES
from skep.store.sql.filters.requests import run_numbers
from skep.store.sql.filters.search import Listing, Page, count, search
from skep.store.sql.schema.agents import agents
from skep.store.sql.schema.blocks import blocks
from skep.store.sql.schema.ended_work import faults
from skep.store.sql.schema.jobs import job_labels, jobs
from skep.store.sql.schema.requests import attempts, requests, tallies
from skep.store.sql.schema.runs import run_labels, runs
from skep.store.sql.store import SqlStore
from skep.wire.filter.check import check, read_filter
from skep.wire.filter.tables import AGENTS, JOBS, REQUESTS, RUNS
from skep.wire.filter.values import LARGEST

NOW = 1_700_000_000.0
ALIVE_AFTER = 30.0
#: Case, wildcards of LIKE and of regular expressions, quotes, spaces at the end, other scripts,
#: letters whose lower case is ASCII (Kelvin sign, dotted I), and the ends of the code points.
TEXTS = [
    *(
        "a",
        "A",
        "ab",
        "aB",
        "AB ",
        "ab ",
        "a b",
        "b",
        "ba",
        "abc",
        "a.b",
        "a*b",
        "[ab]",
        "(a",
        "a$",
    ),
    *("a%", "%", "a_b", "a_", "_", "a\\b", "\\", "a/b", "/", "a|b", "^a", "'", '"', "a\nb", "b\n"),
    *(
        "ä",
        "Ä",
        "é",
        "É",
        "ß",
        "\u1e9e",
        "\u017f",
        "k",
        "K",
        "\u212a",
        "i",
        "I",
        "\u0130",
        "\u0131",
    ),
    *("中文", "中", "文 ", "ab中C"),
    *("😀", "a😀", "\ud7ff", "\ue000", "\uffff", "\U0010ffff", "a\U0010ffff", " ", "  "),
]
#: Unique in every engine: MariaDB takes names that differ in spaces at the end for one.
NAMES = [text for text in TEXTS if text == text.rstrip()]
ROWS = 80


class Ground:
    """A store with rows, and their facts by key."""

    def __init__(self, store: SqlStore, rng: Random) -> None:
        self.store, self.rng = store, rng
        self.facts: dict[str, dict[Any, Facts]] = {"runs": {}, "jobs": {}, "agents": {}}
        self.facts["requests"] = {}

    def text(self) -> str:
        return self.rng.choice(TEXTS)

    def moment(self) -> float:
        return NOW - self.rng.choice([0, 1, 5.5, 60, 3600, 86_400, 1e6])

    def labels(self) -> dict[str, str]:
        return {name: self.text() for name in ("eu", "team") if self.rng.random() < 0.5}

    async def fill(self) -> None:
        await self.store.database.write(self._fill)

    def _fill(self, tx: Tx) -> None:
        for number, name in enumerate(self.rng.sample(NAMES, 12), 1):
            self._run(tx, number, name)
        for name in self.rng.sample(NAMES, 25):
            self._job(tx, name)
            self._agent(tx, name)
        for number in range(1, 5):
            self._block(tx, number)
        for number, word in enumerate(["timeout", "status", "network"], 1):
            row = {"id": number, "failure": word, "status": number % 2 * 404, "text": ""}
            tx.execute(sa.insert(faults).values(**row))
        for number in range(1, ROWS):
            self._request(tx, number)

    def _run(self, tx: Tx, number: int, name: str) -> None:
        rng, created = self.rng, self.moment()
        state, changed = rng.choice(list(RunState)), rng.choice([None, 0.0, created + 7])
        job, reason = rng.choice(["", self.text()]), rng.choice([None, "", self.text()])
        row = {"no": number, "id": name, "job": job, "state": state.value, "settings": b""}
        row |= {"created_at": created, "changed_at": changed, "reason": reason}
        tx.execute(sa.insert(runs).values(**row))
        counts = {ACCEPTED: rng.randrange(3), int(RequestState.DEAD): rng.randrange(3)}
        for which, n in counts.items():
            if n:
                tx.execute(sa.insert(tallies).values(run=number, state=which, n=n))
        labels = self.labels()
        for label, value in labels.items():
            tx.execute(sa.insert(run_labels).values(name=label, value=value, run=number))
        run = Run(name, job, state, RunSettings(), created, reason or "", changed or 0.0)
        run = msgspec.structs.replace(run, labels=labels)
        self.facts["runs"][name] = run_facts(run, NOW, *counts.values())

    def _job(self, tx: Tx, name: str) -> None:
        rng = self.rng
        spider = rng.choice([None, SpiderPart("a:B")])
        downloader = Downloader(rng.choice(["http", "curl"]))
        job = Job(name, self.text(), self.text(), downloader=downloader, spider=spider)
        job = msgspec.structs.replace(job, enabled=rng.random() < 0.5, labels=self.labels())
        for label, value in job.labels.items():
            tx.execute(sa.insert(job_labels).values(name=label, value=value, job=name))
        kept = KeptJob(job, rng.randrange(4), self.text(), self.moment(), self.moment())
        kept = msgspec.structs.replace(kept, deleted=rng.random() < 0.3)
        row = {"name": name, "revision": kept.revision, "definition": bytes_of(job)}
        row |= {"enabled": int(job.enabled), "deleted": int(kept.deleted), "author": kept.author}
        row |= {"created_at": kept.created_at, "changed_at": kept.changed_at}
        tx.execute(sa.insert(jobs).values(**row))
        self.facts["jobs"][name] = job_facts(kept)

    def _agent(self, tx: Tx, name: str) -> None:
        rng = self.rng
        labels = self.labels()
        about = Registration(name, self.text(), self.text(), labels, kinds=("http", self.text()))
        aside = rng.choice(["", "", "cordoned", "draining", "revoked"])
        enabled, seen, registered = rng.random() < 0.6, self.moment(), self.moment()
        view = AgentView(about, enabled, registered, seen, aside=aside)
        packed = {"registration": msgspec.msgpack.encode(about), "aside": aside or None}
        row = {"id": name, "enabled": int(enabled), "seen_at": seen, "registered_at": registered}
        vitals = msgspec.msgpack.encode(Vitals())
        tx.execute(sa.insert(agents).values(**row, **packed, vitals=vitals))
        self.facts["agents"][name] = agent_facts(view, NOW, ALIVE_AFTER)

    def _block(self, tx: Tx, number: int) -> None:
        state = BlockState.USING if number % 2 else BlockState.READY
        row: dict[str, Any] = dict.fromkeys(
            ("priority", "token", "losses", "lease_until", "size", "open", "failed", "collected"), 0
        )
        row |= {"id": number, "run": 1, "state": int(state), "agent": "", "target": ""}
        tx.execute(sa.insert(blocks).values(**row, created_at=NOW))

    def _request(self, tx: Tx, number: int) -> None:
        rng = self.rng
        stored = rng.choice([one for one in RequestState if one is not RequestState.LEASED])
        dead = stored is RequestState.DEAD
        run = rng.randrange(1, 13)
        row: dict[str, Any] = {
            "id": number,
            "run": run,
            "fingerprint": number.to_bytes(16, "big"),
            "uri": self.text() + self.text(),
            "host": self.text().lower(),
            "priority": rng.randrange(-1, 6),
            "arguments": b"",
            "state": int(stored),
            "failures": rng.randrange(3),
            "block": rng.randrange(1, 5) if stored is RequestState.QUEUED else None,
            "not_before": 0.0,
            "created_at": self.moment(),
            "fault": rng.choice([None, 1, 2, 3]) if dead else None,
            "died_at": self.moment() if dead else None,
        }
        last = self._attempts(tx, number)
        row["failure"] = last.get("failure") or None
        if dead:
            row["failure"] = [None, "timeout", "status", "network"][row["fault"] or 0]
        tx.execute(sa.insert(requests).values(**row))
        self.facts["requests"][number] = self._request_facts(row, stored, last)

    def _attempts(self, tx: Tx, number: int) -> dict[str, Any]:
        """The last of some, which may be several of one block."""
        keys = [(block, token) for block in (1, 2) for token in (1, 2)]
        chosen = sorted(self.rng.sample(keys, self.rng.choice([0, 0, 1, 2, 4])))
        row: dict[str, Any] = {}
        for block, token in chosen:
            row = {"request": number, "block": block, "token": token, "at": self.moment()}
            row |= {"agent": self.text(), "detail": self.rng.choice(["", self.text()])}
            row |= {"failure": self.rng.choice(["", *FailureClass]).lower(), "sent": 0}
            row |= {"status": self.rng.choice([0, 200, 404, 503]), "address": "", "final_uri": ""}
            row |= {"elapsed_us": self.rng.choice([0, 100_000, 1_000_001, 30_000_000])}
            row |= {"received": self.rng.choice([0, 1000, 1_000_001]), "segment": ""}
            tx.execute(sa.insert(attempts).values(**row, offset=0, length=0))
        return row

    def _request_facts(
        self, row: dict[str, Any], stored: RequestState, last: dict[str, Any]
    ) -> Facts:
        run = list(self.facts["runs"].values())[row["run"] - 1]
        in_hand = stored is RequestState.QUEUED and row["block"] % 2
        fault = row["fault"] or 0
        error, status = last.get("failure"), last.get("status")
        if stored is RequestState.DONE:
            error = None
        if stored is RequestState.DEAD:
            error = ["", "timeout", "status", "network"][fault]
            status = fault % 2 * 404
        plain = ("id", "uri", "host", "failures", "priority", "block")
        facts: Facts = {name: row[name] for name in plain}
        return facts | {
            "state": "leased" if in_hand else stored.name.lower(),
            "run": run["id"],
            "job": run["job"],
            "error": error,
            "status": status or None,
            "group": group_name(fault, row["host"]) if fault else None,
            "detail": last.get("detail"),
            "agent": last.get("agent"),
            "duration": last["elapsed_us"] / 1e6 if last else None,
            "size": last.get("received"),
            "created": row["created_at"],
            "died": row["died_at"],
            "label": run["label"],
        }


KEYS: dict[str, tuple[FieldTable, sa.Column[Any]]] = {
    "requests": (REQUESTS, requests.c.id),
    "runs": (RUNS, runs.c.id),
    "jobs": (JOBS, jobs.c.name),
    "agents": (AGENTS, agents.c.id),
}


@pytest_asyncio.fixture
async def ground(store_url: str) -> AsyncIterator[Ground]:
    store = SqlStore(store_url)
    await store.open()
    made = Ground(store, Random(store_url.partition(":")[0] + "rows"))
    await made.fill()
    yield made
    await store.close()


def random_filter(rng: Random, table: FieldTable, rows: list[Facts]) -> FilterTree:
    terms = [random_term(rng, table, rows) for _ in range(rng.choice([1, 1, 1, 2, 3]))]
    return FilterTree(tuple(terms))


def random_term(rng: Random, table: FieldTable, rows: list[Facts]) -> FilterTerm:
    field = rng.choice([*table.fields, None])
    kind = FieldType.TEXT if field is None else field.type
    known = table.text[0] if field is None else field.fact
    some = [row[known] for row in rng.sample(rows, 3)]
    operators = (Operator.EQUALS, Operator.STARTS) if field is None else field.operators
    words = () if field is None else (*field.words, *field.groups)
    values = [
        random_value(rng, kind, rng.choice(operators), rng.choice(some), words)
        for _ in range(rng.choice([1, 1, 2]))
    ]
    return FilterTerm("" if field is None else field.name, tuple(values), rng.random() < 0.3)


def random_value(
    rng: Random, kind: FieldType, operator: Operator, known: object, words: tuple[str, ...]
) -> FilterValue:
    if operator is Operator.ANY:
        return FilterValue(operator)
    write: Callable[[], str] = {
        FieldType.WORD: lambda: rng.choice(words or ("a",)),
        FieldType.LABEL: lambda: rng.choice(["eu", "team", f"team={rng.choice(TEXTS)}", "team="]),
        FieldType.GROUP: lambda: rng.choice([f"{rng.randrange(1, 4):x}", str(known or "1@b")]),
        FieldType.INTEGER: lambda: str(
            rng.choice([known or 0, rng.randrange(5), LARGEST, -LARGEST])
        ),
        FieldType.DURATION: lambda: rng.choice(
            ["100ms", "1s", "30s", "1.000001s", "0", "7s", "9" * 12 + "w"]
        ),
        FieldType.SIZE: lambda: rng.choice(["0", "1kB", "1MB", "1000001", "9" * 15 + "TB"]),
        FieldType.TIME: lambda: moment(rng),
        FieldType.SINCE: lambda: moment(rng),
        FieldType.UNTIL: lambda: moment(rng),
    }.get(kind, lambda: part_of(rng, str(known or rng.choice(TEXTS)), operator))
    return FilterValue(operator, write(), write() if operator is Operator.RANGE else "")


def moment(rng: Random) -> str:
    known = ["1s", "60s", "1h", "1d", "2023-11-14", "2023-11-14T22:13", "1700000000"]
    return rng.choice([*known, "9" * 12 + "w", "0001-01-01", "9998-01-01"])


def part_of(rng: Random, text: str, operator: Operator) -> str:
    """Something that is likely to be found, often in the other case."""
    if operator is Operator.STARTS:
        text = text[: rng.randrange(1, 3)]
    elif operator is not Operator.EQUALS:
        text = text[-rng.randrange(1, 3) :]
    return rng.choice([text, text, text.swapcase(), rng.choice(TEXTS)]) or "a"


async def found(ground: Ground, wanted: CheckedFilter, key: sa.Column[Any]) -> set[Any]:
    """By SQL, and in memory where SQL leaves something over."""
    database = ground.store.database
    engine, facts = database.dialect.name, ground.facts[wanted.resource]
    runs = await database.read(lambda c: run_numbers(c, wanted, engine))
    results = []
    for known in (None, runs):
        compiled = compile_filter(wanted, engine, ALIVE_AFTER, known)
        query = sa.select(key).where(*compiled.conditions)
        keys = await database.read(lambda c, query=query: list(c.execute(query).scalars()))  # type: ignore[misc]
        assert len(keys) == len(set(keys))
        results.append({one for one in keys if matches(compiled.rest, facts[one])})
    assert results[0] == results[1]
    return results[0]


@pytest.mark.parametrize("resource", KEYS)
async def test_databases_and_memory_agree(ground: Ground, resource: str) -> None:
    _, key = KEYS[resource]
    facts = ground.facts[resource]
    hits = total = 0
    for wanted in checked_filters(resource, facts, 400):
        expected = {one for one, row in facts.items() if matches(wanted, row)}
        assert await found(ground, wanted, key) == expected, wanted
        total += 1
        hits += 0 < len(expected) < len(facts)
    assert total > 300
    assert hits > 120, "too few filters that find some rows and not all"


def checked_filters(resource: str, facts: dict[Any, Facts], number: int) -> Iterator[CheckedFilter]:
    """Random, the same in every run; those that mean nothing are left out."""
    table, _ = KEYS[resource]
    rows = list(facts.values())
    for seed in range(number):
        tree = random_filter(Random(f"{resource}{seed}"), table, rows)
        with suppress(InvalidFilter):
            yield check(tree, table, NOW)


def listing_of(ground: Ground, resource: str) -> Listing:
    _, key = KEYS[resource]
    facts = ground.facts[resource]
    newest_first = resource == "requests"
    return Listing(sa.select(key), key, newest_first, lambda row: facts[row[0]], stretch=7)


async def all_pages(
    ground: Ground, listing: Listing, wanted: CompiledFilter, limit: int
) -> AsyncIterator[Page]:
    """Every page, from the first to the last."""
    after, more = None, True
    while more:
        page = await ground.store.database.read(
            lambda c, after=after: search(c, listing, wanted, after, limit, budget=20)  # type: ignore[misc]
        )
        yield page
        after, more = page.next, page.next is not None


@pytest.mark.parametrize("resource", ["requests", "jobs", "agents"])
async def test_pages_show_every_row_that_fits_once(ground: Ground, resource: str) -> None:
    """However small pages and budgets are; a call never looks at much more than its budget."""
    listing, facts = listing_of(ground, resource), ground.facts[resource]
    for wanted in checked_filters(resource, facts, 60):
        compiled = compile_filter(wanted, ground.store.database.dialect.name, ALIVE_AFTER)
        limit = Random(str(wanted)).randrange(1, 9)
        pages = [page async for page in all_pages(ground, listing, compiled, limit)]
        assert max(len(page.rows) for page in pages) <= limit
        assert max(page.scanned for page in pages) < 20 + 7
        assert len(pages) <= len(facts) + 1
        seen = [row[0] for page in pages for row in page.rows]
        assert len(seen) == len(set(seen))
        assert set(seen) == {one for one, row in facts.items() if matches(wanted, row)}
        assert resource != "requests" or seen == sorted(seen, reverse=True)


@pytest.mark.parametrize("resource", ["requests", "agents"])
@pytest.mark.parametrize(("limit", "budget"), [(10_000, 10_000), (3, 10_000), (10_000, 14)])
async def test_counts_are_exact_or_say_that_they_are_not(
    ground: Ground, resource: str, limit: int, budget: int
) -> None:
    listing, facts = listing_of(ground, resource), ground.facts[resource]
    for wanted in checked_filters(resource, facts, 40):
        compiled = compile_filter(wanted, ground.store.database.dialect.name, ALIVE_AFTER)
        counted = await ground.store.database.read(
            lambda c, compiled=compiled: count(c, listing, compiled, limit, budget)  # type: ignore[misc]
        )
        expected = sum(matches(wanted, row) for row in facts.values())
        assert counted.n == expected if counted.exact else counted.n <= expected
        assert counted.n <= limit
        assert counted.exact or limit < expected or budget < len(facts)


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_a_scan_reads_no_more_than_its_stretch(ground: Ground) -> None:
    """An index that answers a part of the filter could lead to a million rows."""
    asked: list[tuple[str, Any]] = []
    database = ground.store.database

    def listen(_c: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        asked.append((statement, parameters))

    compiled = compile_filter(read_filter("uri:b state:dead", REQUESTS, NOW), "sqlite")
    assert compiled.serving.index == "requests_dead_ids"
    sa.event.listen(database.engine, "before_cursor_execute", listen)
    await database.read(lambda c: search(c, listing_of(ground, "requests"), compiled))
    sa.event.remove(database.engine, "before_cursor_execute", listen)
    (statement, parameters) = next(one for one in asked if "requests.uri" in one[0])
    plan = await database.read(
        lambda c: str(c.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all())
    )
    assert "SEARCH requests USING INDEX requests_dead_ids (id>?" in plan


def columns_of(connection: sa.Connection, table: str) -> dict[str, list[tuple[str, ...]]]:
    """Columns of the keys and indexes of a table, by name."""
    inspector = sa.inspect(connection)
    key = inspector.get_pk_constraint(table)["constrained_columns"]
    found = {"PRIMARY": [tuple(key)], "UNIQUE": []}
    for one in inspector.get_unique_constraints(table):
        found["UNIQUE"].append(tuple(one["column_names"]))
        found.setdefault(one["name"] or "", []).append(tuple(one["column_names"]))
    for index in inspector.get_indexes(table):
        names = tuple(name or "" for name in index["column_names"])
        found.setdefault(index["name"] or "", []).append(names)
        if index["unique"]:
            found["UNIQUE"].append(names)
    return found


async def test_the_listed_indexes_exist(ground: Ground) -> None:
    database = ground.store.database
    for resource, indexes in INDEXES.items():
        for index in indexes:
            of = index.table or resource
            real = await database.read(lambda c, table=of: columns_of(c, table))  # type: ignore[misc]
            if database.dialect.name in index.engines:
                wanted = (*index.of_state, *index.columns)
                begins = [columns[: len(wanted)] for columns in real.get(index.name, [])]
                assert wanted in begins, (index, real)


#: The index that is named, and SQLite's own words; keys have names of their own there.
PLANS = {
    ("requests", "id:5"): ("PRIMARY", "USING INTEGER PRIMARY KEY"),
    ("requests", "run:x"): ("requests_once", "autoindex_requests_1 (run=?"),
    ("requests", "run:x uri:y"): ("requests_once", "autoindex_requests_1 (run=?"),
    ("requests", "state:dead"): ("requests_dead_ids", "INDEX requests_dead"),
    ("requests", "error:timeout"): ("requests_failed", "INDEX requests_failed (failure=?"),
    ("requests", "group:1@h"): ("requests_dead_groups", "INDEX requests_"),
    ("requests", "state:dead host:h"): ("requests_dead_hosts", "INDEX requests_dead_hosts (host=?"),
    ("requests", "state:dead run:x group:1@h"): (
        "requests_dead",
        "INDEX requests_dead (run=? AND fault=? AND host=?",
    ),
    ("requests", "state:waiting run:x"): ("requests_waiting", "INDEX requests_waiting (run=?"),
    ("requests", "state:delayed host:x"): ("requests_parked", "INDEX requests_parked (host=?"),
    ("runs", "id:x"): ("UNIQUE", "autoindex_runs_1 (id=?"),
    ("runs", "state:failed"): ("runs_in_state", "INDEX runs_"),
    ("runs", "job:x"): ("runs_of_job", "INDEX runs_of_job (job=?"),
    ("runs", "since:2h"): ("runs_created", "INDEX runs_created (created_at>?"),
    ("runs", "label:team=a"): ("PRIMARY", "autoindex_run_labels_1 (name=? AND value=?"),
    ("jobs", "state:enabled"): ("jobs_in_state", "INDEX jobs_in_state (deleted=? AND enabled=?"),
    ("jobs", "name:a*"): ("PRIMARY", "autoindex_jobs_1 (name>? AND name<?"),
    ("agents", "id:x,y"): ("PRIMARY", "autoindex_agents_1 (id=?"),
    ("requests", "uri:x"): ("", "SCAN requests"),
    ("requests", "-run:x"): ("", "SCAN requests"),
    ("runs", "duration:>1h"): ("", "SCAN runs"),
}


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_the_named_index_is_used(ground: Ground) -> None:
    for (resource, text), (index, words) in PLANS.items():
        table, key = KEYS[resource]
        compiled = compile_filter(read_filter(text, table, NOW), "sqlite")
        query = sa.select(key.table).where(*compiled.conditions)
        plan = await ground.store.database.read(lambda c, query=query: explained(c, query))  # type: ignore[misc]
        assert words in plan, text
        assert compiled.serving.index == index, text


def explained(connection: sa.Connection, query: sa.Select[Any]) -> str:
    text = query.compile(connection, compile_kwargs={"literal_binds": True})
    rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}")
    return "\n".join(str(row[-1]) for row in rows)
