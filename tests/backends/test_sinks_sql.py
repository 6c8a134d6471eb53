"""What a table does with records that are not all alike, on each real database."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.errors import ConfigurationError
from skep.streams.ports import Record, Refused
from skep.streams.registry import open_sink
from skep.testing import servers
from skep.testing.conformance.sink import pages, records

TABLES = itertools.count(1)


class Database:
    """A real one, read without our code in between."""

    def __init__(self, url: str, driver: str) -> None:
        self.url = url
        self.engine = sa.create_engine(driver)

    @property
    def kind(self) -> str:
        return self.engine.dialect.name

    def fresh(self) -> str:
        return f"t{next(TABLES)}"

    def rows(self, table: str) -> list[dict[str, Any]]:
        with self.engine.connect() as connection:
            query = sa.select(sa.text("*")).select_from(sa.table(table))
            return [dict(row) for row in connection.execute(query).mappings()]

    def column(self, table: str, name: str) -> list[Any]:
        return [row[name] for row in sorted(self.rows(table), key=lambda row: row["skep_id"])]

    def tables(self) -> set[str]:
        with self.engine.connect() as connection:
            return set(sa.inspect(connection).get_table_names())

    def run(self, statement: str) -> None:
        with self.engine.begin() as connection:
            connection.exec_driver_sql(statement)

    async def store(self, table: str, *batches: list[Record], options: str = "") -> list[Refused]:
        sink = open_sink(f"{self.url}?table={table}{options}")
        try:
            await sink.open()
            return [one for batch in batches for one in await sink.write(batch)]
        finally:
            await sink.close()


@pytest.fixture(scope="module", params=["sqlite", "postgresql", "mariadb"])
def database(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Database]:
    if request.param == "sqlite":
        file = tmp_path_factory.mktemp("sqlite") / "items.db"
        found = Database(f"sqlite:{file}", f"sqlite:///{file}")
    else:
        name = {"postgresql": "postgres_server", "mariadb": "mariadb_server"}[request.param]
        server: servers.Database = request.getfixturevalue(name)
        url = server.fresh_database()
        driver = {"postgresql": "postgresql+psycopg", "mariadb": "mysql+pymysql"}[request.param]
        found = Database(url, driver + url[url.index(":") :])
    yield found
    found.engine.dispose()


async def test_new_fields_become_new_columns(database: Database) -> None:
    table = database.fresh()
    await database.store(
        table, records({"a": 1}), records({"b": "x"}, first=2), records({"a": 3, "c": 1.5}, first=3)
    )
    rows = sorted(database.rows(table), key=lambda row: row["skep_id"])
    assert [(row["a"], row["b"], row["c"]) for row in rows] == [
        (1, None, None),
        (None, "x", None),
        (3, None, 1.5),
    ]


@pytest.mark.parametrize(
    ("values", "stored"),
    [
        ([1, 2.5, 3], [1.0, 2.5, 3.0]),
        ([1, "x", 2], ["1", "x", "2"]),
        ([2**60, 0.5], [str(2**60), "0.5"]),
        ([0.5, 2**60], ["0.5", str(2**60)]),
        ([1, 2**70], ["1", str(2**70)]),
        ([1, [2]], ["1", "[2]"]),
        (["x", {"a": 1}], ["x", '{"a":1}']),
        (["x", True, 1.5, 3], ["x", "true", "1.5", "3"]),
        ([None, 1, None], [None, 1, None]),
        ([float("nan"), 1.5], [None, 1.5]),
    ],
)
@pytest.mark.parametrize("together", [True, False], ids=["one batch", "batch by batch"])
async def test_a_column_widens_to_hold_what_comes(
    database: Database, values: list[Any], stored: list[Any], together: bool
) -> None:
    table = database.fresh()
    told = records(*({"v": value} for value in values))
    batches = [told] if together else [[record] for record in told]
    assert await database.store(table, *batches) == []
    assert database.column(table, "v") == stored


async def test_truth_becomes_text_when_text_comes(database: Database) -> None:
    table = database.fresh()
    await database.store(table, records({"v": True}), records({"v": "maybe"}, first=2))
    # MySQL's BOOLEAN is a small number, and stays one as text.
    assert database.column(table, "v") == ["1" if database.kind == "mysql" else "true", "maybe"]


async def test_fields_that_an_update_lacks_keep_their_value(database: Database) -> None:
    table = database.fresh()
    told = [
        records({"id": 1, "a": "x", "b": "y"}, {"id": 2, "a": "z"}),
        records({"id": 1, "a": "new"}, {"id": 2, "a": None, "b": 5}, first=3),
    ]
    assert await database.store(table, *told, options="&key=id") == []
    rows = sorted(database.rows(table), key=lambda row: row["id"])
    assert rows == [{"id": 1, "a": "new", "b": "y"}, {"id": 2, "a": None, "b": "5"}]


async def test_two_fields_make_a_key(database: Database) -> None:
    table = database.fresh()
    told = records(
        {"h": "a", "p": 1, "n": 1}, {"h": "a", "p": 2, "n": 2}, {"h": "a", "p": 1, "n": 3}
    )
    assert await database.store(table, told, options="&key=h,p") == []
    assert sorted(row["n"] for row in database.rows(table)) == [2, 3]


async def test_keys_differ_by_case_and_accent_and_length(database: Database) -> None:
    table = database.fresh()
    told = records({"k": "a"}, {"k": "A"}, {"k": "á"}, {"k": "a "}, {"k": "x" * 700})
    assert await database.store(table, told, options="&key=k") == []
    assert {row["k"] for row in database.rows(table)} == {"a", "A", "á", "a ", "x" * 700}
    refused = await database.store(table, records({"k": "x" * 3000}, first=9), options="&key=k")
    assert "3000 characters" in refused[0].reason


async def test_a_key_of_another_type_is_refused(database: Database) -> None:
    table = database.fresh()
    refused = await database.store(
        table, records({"k": 1}), records({"k": "x"}, first=2), options="&key=k"
    )
    assert [(one.position, "key 'k' is not int" in one.reason) for one in refused] == [(2, True)]


async def test_two_sources_write_into_one_table(database: Database) -> None:
    """Each has positions of its own; none hides the other's records."""
    table = database.fresh()
    for name in ("run-1", "run-2"):
        sink = open_sink(f"{database.url}?table={table}", name=name)
        assert await sink.open() == 0
        await sink.write(pages(3))
        await sink.close()
    assert len(database.rows(table)) == 6


async def test_a_commit_whose_answer_was_lost_is_not_done_twice(database: Database) -> None:
    """The same batch told to a second sink, as after a crash between commit and answer."""
    table = database.fresh()
    await database.store(table, pages(5))
    await database.store(table, pages(8))
    assert [row["n"] for row in database.rows(table)] == list(range(1, 9))


async def test_an_existing_table_is_used_as_it_is(database: Database) -> None:
    table = database.fresh()
    database.run(f"CREATE TABLE {table} (url VARCHAR(100) PRIMARY KEY, at DATE, note VARCHAR(5))")
    told = records({"url": "a", "at": "2026-01-02", "note": "x"})
    assert await database.store(table, told, options="&key=url") == []
    (row,) = database.rows(table)
    assert (row["url"], str(row["at"]), row["note"]) == ("a", "2026-01-02", "x")


async def test_a_key_without_a_unique_index_is_a_mistake(database: Database) -> None:
    table = database.fresh()
    database.run(f"CREATE TABLE {table} (url VARCHAR(100))")
    with pytest.raises(ConfigurationError, match="no unique index on url"):
        await database.store(table, pages(1), options="&key=url")


async def test_a_table_that_was_dropped_is_made_again(database: Database) -> None:
    table = database.fresh()
    sink = open_sink(f"{database.url}?table={table}")
    await sink.open()
    await sink.write(pages(2))
    database.run(f"DROP TABLE {table}")
    assert await sink.write(pages(2, first=3)) == []
    await sink.close()
    assert [row["n"] for row in database.rows(table)] == [3, 4]


async def test_there_is_an_end_to_columns(database: Database) -> None:
    table = database.fresh()
    told = records({"a": 1, "b": 2}, {"c": 3, "d": 4}, {"a": 5})
    refused = await database.store(table, told, options="&columns=3")
    assert [one.position for one in refused] == [2]
    assert "more than 3 columns" in refused[0].reason


async def test_names_that_are_one_column_are_refused(database: Database) -> None:
    refused = await database.store(database.fresh(), records({"Name": 1, "name": 2}))
    assert bool(refused) == (database.kind != "postgresql")


async def test_a_record_without_fields_is_a_row(database: Database) -> None:
    table = database.fresh()
    assert await database.store(table, records({}, {}), records({"a": 1}, {}, first=3)) == []
    assert database.column(table, "a") == [None, None, 1, None]


HOSTILE = st.one_of(
    st.text(min_size=1, max_size=70),
    st.sampled_from(
        [
            'a" TEXT); DROP TABLE victim; --',
            "a` INT); DROP TABLE victim; --",
            "a'; DROP TABLE victim; --",
            "%s",
            "%(v0)s",
            ":v0",
            "v0",
            "v!0",
            "select",
            "skep_id",
            "position",
            "a.b",
            "a-b",
            "$1",
            "é" * 30,
            "é" * 31,
            "x" * 64,
        ]
    ),
)


VALUES = st.sampled_from(["x", "'; DROP TABLE victim; --"])


def test_no_field_name_is_ever_part_of_a_statement(database: Database) -> None:
    """Injection through names: a record is stored under exactly its names, or refused."""
    database.run("CREATE TABLE victim (n INT)")
    before = database.tables()

    async def one(names: dict[str, str]) -> None:
        table = database.fresh()
        refused = await database.store(table, records(dict(names)))
        if refused:
            assert refused[0].reason
            assert table not in database.tables()
            return
        (row,) = database.rows(table)
        row.pop("skep_id")
        assert row == names
        database.run(f"DROP TABLE {table}")

    @settings(max_examples=40)
    @given(st.dictionaries(HOSTILE, VALUES, min_size=1, max_size=4))
    def try_names(names: dict[str, str]) -> None:
        asyncio.run(one(names))

    try_names()
    assert database.tables() == before | {"skep_positions"}
