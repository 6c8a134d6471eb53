"""Records into a collection of MongoDB, so that writing one again changes nothing.

With a key, a record updates the document of that key; without one it becomes a document
whose `_id` is its position. The operations are made by a pure function, `operation_for`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl

from bson.errors import BSONError
from pymongo import MongoClient, ReplaceOne, UpdateOne
from pymongo import errors as known
from pymongo.collection import Collection
from pymongo.synchronous.pool import Connection, Pool

from skep.errors import ConfigurationError, InvalidInput, SkepError, Unavailable
from skep.streams.blocking_thread import OneThread
from skep.streams.driver_options import host_list
from skep.streams.host_rules import HostRules, JobLimits
from skep.streams.json_records import as_json, field_of, plain, sort_out
from skep.streams.ports import Record, Refused
from skep.streams.sink_options import MongoOptions
from skep.streams.sink_url import SinkUrl

Document = dict[str, Any]
Operation = ReplaceOne[Document] | UpdateOne
INT_LIMIT = 2**63
AUTHENTICATION_FAILED = 18
UNAUTHORIZED = 13
PORT = 27017


def operation_for(record: Record, key: str, name: str) -> Operation:
    """What is sent for a record; raises InvalidInput for what no document can hold."""
    document = {_checked(field): plain(value) for field, value in record.data.items()}
    as_json(document)
    _check_numbers(document)
    if key:
        value = field_of(record, key)
        return UpdateOne({key: value}, {"$set": document}, upsert=True)
    own = f"{name}/{record.position}" if name else record.position
    identity = document.setdefault("_id", own)
    return ReplaceOne({"_id": identity}, document, upsert=True)


def _checked(field: str) -> str:
    """A dot would be a path and a dollar a command."""
    if not field or field.startswith("$") or "." in field or "\0" in field:
        raise InvalidInput(f"{field[:60]!a} cannot be a field: no dot, no $ at its start")
    return field


def _check_numbers(value: Any) -> None:
    if isinstance(value, int) and not -INT_LIMIT <= value < INT_LIMIT:
        raise InvalidInput("it holds a whole number of more than 64 bits")
    if isinstance(value, list | dict):
        for inner in value.values() if isinstance(value, dict) else value:
            _check_numbers(inner)


def _defaults(query: str) -> dict[str, Any]:
    """What the URL does not say: a majority has it before `write` returns."""
    said = {name.lower() for name, _ in parse_qsl(query)}
    ours = {"w": "majority", "serverSelectionTimeoutMS": 10_000}
    return {name: value for name, value in ours.items() if name.lower() not in said}


def checked_pool(rules: HostRules, seeds: list[tuple[str, int]]) -> type[Pool]:
    """Pools that connect only where `rules` lets them: a server names others, as it likes."""

    class CheckedPool(Pool):
        def __init__(self, address: Any, *rest: Any, **more: Any) -> None:
            super().__init__(address, *rest, **more)
            self._named = address

        def connect(self, *rest: Any, **more: Any) -> Connection:
            host, port = self._named
            try:
                found = rules.addresses(host, port, written=(host, port) in seeds)
            except SkepError as error:
                raise known.ConnectionFailure(error.detail) from error
            # With TLS the name stays, for the certificate: where a name leads elsewhere by
            # now, the handshake fails.
            if self.opts._ssl_context is None:  # noqa: SLF001 - there is no other way to ask
                self.address = (found[0], port)
            return super().connect(*rest, **more)

    return CheckedPool


class MongoSink:
    """One collection."""

    def __init__(
        self, place: SinkUrl, options: MongoOptions, name: str, limits: JobLimits | None = None
    ) -> None:
        self._place, self._options, self._name = place, options, name
        self._limits = limits
        self._hosts = host_list(place.hosts, PORT) if limits is not None else []
        database = place.path.strip("/")
        if not database:
            raise ConfigurationError("mongodb sink: write mongodb://HOST/DATABASE.")
        self._database = database
        self._client: MongoClient[Document] | None = None
        # With pymongo's asyncio client, tests saw sockets that were not closed with it.
        self._thread = OneThread("sink-mongo")

    async def open(self) -> int:
        await self._thread.run(self._open)
        return 0

    async def write(self, records: Sequence[Record]) -> list[Refused]:
        operations, refused = sort_out(
            records, lambda record: operation_for(record, self._options.key, self._name)
        )
        if operations and not refused:
            await self._thread.run(self._store, operations)
        return refused

    async def close(self) -> None:
        await self._thread.run(self._drop)
        await self._thread.close()

    def describe(self) -> str:
        return f"{self._place.shown} collection {self._options.collection}"

    # -- in the thread

    def _open(self) -> None:
        self._drop()
        self._check_hosts()
        try:
            collection = self._collection()
            collection.database.client.admin.command("ping")
            if self._options.key:
                # Two upserts of a new key at once would else make two documents.
                collection.create_index(self._options.key, unique=True)
        except known.PyMongoError as error:
            raise self._explain(error) from error

    def _check_hosts(self) -> None:
        """Early, for the sentence; what counts is the check of each connection."""
        if self._limits is not None and self._place.scheme == "mongodb":
            for host, port in self._hosts:
                self._limits.hosts.addresses(host, port)

    def _store(self, operations: list[Operation]) -> None:
        try:
            self._collection().bulk_write(operations, ordered=True)
        except (known.PyMongoError, BSONError) as error:
            raise self._explain(error) from error

    def _collection(self) -> Collection[Document]:
        if self._client is None:
            try:
                self._client = MongoClient(self._place.url, **self._arguments())
            except ValueError as error:
                raise ConfigurationError(f"mongodb sink: {error}") from error
        return self._client[self._database][self._options.collection]

    def _arguments(self) -> dict[str, Any]:
        said = _defaults(self._place.query)
        if self._limits is None:
            return said
        return said | {"_pool_class": checked_pool(self._limits.hosts, self._hosts)}

    def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _explain(self, error: Exception) -> SkepError:
        code = getattr(error, "code", None)
        short = f"{type(error).__name__}{f' ({code})' if code else ''}"
        said = f"{self._place.shown}: {short if self._limits else str(error)[:300]}"
        if isinstance(error, known.ConfigurationError) or code in {
            AUTHENTICATION_FAILED,
            UNAUTHORIZED,
        }:
            return ConfigurationError(said)
        bad = (known.BulkWriteError, known.DocumentTooLarge, known.InvalidOperation, BSONError)
        return InvalidInput(said) if isinstance(error, bad) else Unavailable(said)
