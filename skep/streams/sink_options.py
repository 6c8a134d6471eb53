"""What can be said to each kind of sink, as frozen structs with a line for each field.

Pure data: the command line, the portal and the reference page are made from it, and the
library of an engine is not needed to read it. A secret is never an option, only the name
of the environment variable that holds it.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from skep.errors import ConfigurationError
from skep.runtime.value_errors import explained

Key = Annotated[
    str, Meta(description="Field that names a record: the same key again is an update.")
]


class SinkOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One struct per kind; a URL gives its fields as a query."""


class JsonLinesOptions(SinkOptions, frozen=True):
    """A file of JSON, one record on each line."""


class CsvOptions(SinkOptions, frozen=True):
    """A file of comma-separated values with a header."""

    fields: Annotated[
        str,
        Meta(description="Columns with commas, others are left out; empty: the first record's."),
    ] = ""
    separator: Annotated[
        str, Meta(min_length=1, max_length=1, description="The character between two cells.")
    ] = ","
    escape: Annotated[
        bool,
        Meta(description="Put an apostrophe before text that a spreadsheet would calculate."),
    ] = True


class SqlOptions(SinkOptions, frozen=True):
    """A table in SQLite, PostgreSQL, MySQL or MariaDB."""

    table: Annotated[
        str, Meta(min_length=1, max_length=60, description="Table, made when it is not there.")
    ] = "items"
    key: Annotated[
        str,
        Meta(description="Fields with commas that name a record: the same again is an update."),
    ] = ""
    columns: Annotated[
        int, Meta(ge=1, le=1000, description="Most columns that records may make.")
    ] = 300


class RedisOptions(SinkOptions, frozen=True):
    """A list, a stream or a hash in Redis; exactly one of the three."""

    list: Annotated[str, Meta(description="List that records are pushed to, as JSON.")] = ""
    stream: Annotated[
        str, Meta(description="Stream that records are added to, as fields position and data.")
    ] = ""
    hash: Annotated[str, Meta(description="Hash that keeps the last record of each key.")] = ""
    key: Key = ""


class KafkaOptions(SinkOptions, frozen=True):
    """A topic of Kafka."""

    key: Annotated[
        str, Meta(description="Field whose value is the message's key, so its partition.")
    ] = ""
    compression: Annotated[
        str,
        Meta(pattern="^(none|gzip|snappy|lz4|zstd)$", description="Compression of batches."),
    ] = "zstd"
    timeout: Annotated[
        float, Meta(gt=0, le=600, description="Seconds until a batch counts as not delivered.")
    ] = 30.0
    max_bytes: Annotated[
        int, Meta(ge=1000, description="Largest message; a larger record is refused.")
    ] = 1_000_000
    tls: Annotated[bool, Meta(description="Speak TLS to the brokers.")] = False
    mechanism: Annotated[
        str,
        Meta(
            pattern="^(PLAIN|SCRAM-SHA-256|SCRAM-SHA-512)$",
            description="How to log in, when the URL has a user: PLAIN, SCRAM-SHA-256 or -512.",
        ),
    ] = "PLAIN"


class MongoOptions(SinkOptions, frozen=True):
    """A collection of MongoDB."""

    collection: Annotated[str, Meta(min_length=1, description="Collection to write into.")] = (
        "items"
    )
    key: Key = ""


class WebhookOptions(SinkOptions, frozen=True):
    """An address that takes POSTs of JSON."""

    batch: Annotated[int, Meta(ge=1, le=10_000, description="Most records in one call.")] = 100
    timeout: Annotated[float, Meta(gt=0, le=600, description="Seconds for one call.")] = 30.0
    secret: Annotated[
        str, Meta(description="Environment variable with the secret that signs each call.")
    ] = ""


def read_options(kind: type[SinkOptions], given: dict[str, Any], of: str) -> SinkOptions:
    """Text or typed values to the struct; raises ConfigurationError that names the field."""
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        known = ", ".join(kind.__struct_fields__) or "none"
        text = explained(error, given, kind, "option")
        raise ConfigurationError(f"{of} sink: {text}. Its options: {known}.") from error
