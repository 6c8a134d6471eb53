"""Which sink a URL means. One row per kind: name, schemes, options, constructor.

The library of an engine is imported when its sink is opened, so that optional
libraries stay optional. Opened by centers and by the command line; it connects to nothing yet.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from skep.errors import ConfigurationError
from skep.runtime.clock import Clock, SystemClock
from skep.streams import sink_options as of
from skep.streams.driver_options import BY_SCHEME, check_options
from skep.streams.host_rules import JobLimits
from skep.streams.ports import Sink
from skep.streams.sink_url import SinkUrl, confined, parse_file, parse_remote, scheme_of


class Surroundings(NamedTuple):
    """What a sink may need beyond its URL."""

    name: str
    clock: Clock
    environment: Mapping[str, str]
    #: Of the job that names the sink; None: a person typed its URL.
    limits: JobLimits | None


Make = Callable[[SinkUrl, Any, Surroundings], Sink]


class SinkKind(NamedTuple):
    """One kind of sink."""

    name: str
    schemes: tuple[str, ...]
    options: type[of.SinkOptions]
    make: Make
    #: What is promised when something is killed in the middle.
    promise: str
    example: str
    #: Libraries that may be missing, and the extra of this package that brings them.
    extras: Mapping[str, str] = {}
    is_file: bool = False
    #: Whether a query may hold names that are not ours, for the other side.
    open_query: bool = False


def open_sink(
    url: str,
    options: Mapping[str, Any] | None = None,
    *,
    name: str = "",
    clock: Clock | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    limits: JobLimits | None = None,
) -> Sink:
    """The sink behind a URL, not yet connected; raises ConfigurationError.

    `options` win over the query of the URL. `name` keeps the positions of several sources
    apart that write into the same place: give the run's or the pipeline's. With `folder`
    files are below it and nowhere else. `limits` are for sinks that a job names.
    """
    kind = kind_of(url)
    place, query = _parse(url, kind)
    if kind.is_file and folder is not None:
        place = confined(place, folder)
    if place.scheme in BY_SCHEME:
        pairs = parse_qsl(place.query, keep_blank_values=True)
        check_options(place.scheme, pairs, of_job=limits is not None)
    chosen = of.read_options(kind.options, {**query, **(options or {})}, kind.name)
    known = os.environ if environment is None else environment
    around = Surroundings(name, clock or SystemClock(), known, limits)
    try:
        return kind.make(place, chosen, around)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in kind.extras:
            raise
        raise ConfigurationError(
            f"a {place.scheme}: sink needs a library: pip install 'skep[{kind.extras[missing]}]'"
        ) from error


def kind_of(url: str) -> SinkKind:
    """The row of the table for a URL; raises ConfigurationError."""
    scheme = scheme_of(url)
    for kind in KINDS:
        if scheme in kind.schemes:
            return kind
    known = ", ".join(scheme for kind in KINDS for scheme in kind.schemes)
    raise ConfigurationError(f"no sink speaks {scheme[:20]!r}; there are: {known}.")


def file_of(url: str) -> Path | None:
    """The file that a sink writes; None when it writes somewhere else."""
    if not kind_of(url).is_file:
        return None
    place, _ = parse_file(url, scheme_of(url))
    return Path(place.path)


def _parse(url: str, kind: SinkKind) -> tuple[SinkUrl, dict[str, Any]]:
    if kind.is_file:
        return parse_file(url, scheme_of(url))
    place, query = parse_remote(url, kind.options.__struct_fields__)
    if place.query and not kind.open_query:
        raise ConfigurationError(
            f"{kind.name} sink: unknown option in {place.shown.partition('?')[2]!r}. "
            f"Its options: {', '.join(kind.options.__struct_fields__)}."
        )
    return place, query


def _jsonl(place: SinkUrl, _options: of.JsonLinesOptions, around: Surroundings) -> Sink:
    from skep.streams.files import FileSink, JsonLines

    return FileSink(place, around.name, JsonLines())


def _csv(place: SinkUrl, options: of.CsvOptions, around: Surroundings) -> Sink:
    from skep.streams.csv import Csv
    from skep.streams.files import FileSink

    return FileSink(place, around.name, Csv(options))


def _sql(place: SinkUrl, options: of.SqlOptions, around: Surroundings) -> Sink:
    from skep.streams.sql.sink import SqlSink

    return SqlSink(place, options, around.name, around.limits)


def _redis(place: SinkUrl, options: of.RedisOptions, around: Surroundings) -> Sink:
    from skep.streams.redis import RedisSink

    return RedisSink(place, options, around.limits)


def _kafka(place: SinkUrl, options: of.KafkaOptions, around: Surroundings) -> Sink:
    from skep.streams.kafka import KafkaSink

    return KafkaSink(place, options, around.limits)


def _mongo(place: SinkUrl, options: of.MongoOptions, around: Surroundings) -> Sink:
    from skep.streams.mongo import MongoSink

    return MongoSink(place, options, around.name, around.limits)


def _webhook(place: SinkUrl, options: of.WebhookOptions, around: Surroundings) -> Sink:
    from skep.streams.webhook import WebhookSink

    secret = _secret(options.secret, around) if options.secret else ""
    return WebhookSink(place, options, around.name, secret, around.clock, around.limits)


def _secret(name: str, around: Surroundings) -> str:
    if around.limits is not None:
        if around.limits.secrets is None:
            return ""
        if name not in around.limits.secrets:
            raise ConfigurationError(
                f"webhook sink: a job may not sign with the environment variable {name[:100]}; "
                "add its name to jobs.sink_secrets."
            )
    secret = around.environment.get(name, "")
    if not secret:
        raise ConfigurationError(f"webhook sink: the environment variable {name} holds no secret.")
    return secret


ONCE = "Exactly once: the position is stored together with the records."
AGAIN = "At least once: what was under way during a crash is written again."
BY_KEY = "At least once; with a key, writing it again changes nothing."

KINDS: tuple[SinkKind, ...] = (
    SinkKind(
        "jsonl", ("jsonl",), of.JsonLinesOptions, _jsonl, ONCE, "jsonl:quotes.jsonl", is_file=True
    ),
    SinkKind(
        "csv",
        ("csv",),
        of.CsvOptions,
        _csv,
        ONCE,
        "csv:quotes.csv?fields=text,author",
        is_file=True,
    ),
    SinkKind(
        "sqlite",
        ("sqlite",),
        of.SqlOptions,
        _sql,
        ONCE,
        "sqlite:quotes.db?table=quotes&key=url",
        is_file=True,
    ),
    SinkKind(
        "postgresql",
        ("postgresql", "postgres"),
        of.SqlOptions,
        _sql,
        ONCE,
        "postgresql://user@host/db?table=quotes&key=url",
        {"psycopg": "postgres"},
        open_query=True,
    ),
    SinkKind(
        "mysql",
        ("mysql", "mariadb"),
        of.SqlOptions,
        _sql,
        ONCE,
        "mysql://user@host/db?table=quotes&key=url",
        {"pymysql": "mysql"},
        open_query=True,
    ),
    SinkKind(
        "redis",
        ("redis", "rediss"),
        of.RedisOptions,
        _redis,
        BY_KEY,
        "redis://host/0?stream=quotes",
        {"redis": "redis"},
    ),
    SinkKind(
        "kafka",
        ("kafka",),
        of.KafkaOptions,
        _kafka,
        AGAIN,
        "kafka://broker1,broker2/quotes?key=url",
        {"confluent_kafka": "kafka"},
    ),
    SinkKind(
        "mongodb",
        ("mongodb", "mongodb+srv"),
        of.MongoOptions,
        _mongo,
        "At least once; writing it again changes nothing, by key or by position.",
        "mongodb://user@host/db?collection=quotes&key=url",
        {"pymongo": "mongo", "bson": "mongo"},
        open_query=True,
    ),
    SinkKind(
        "webhook",
        ("https", "http"),
        of.WebhookOptions,
        _webhook,
        "At least once; repeated calls carry the same Idempotency-Key.",
        "https://host/path?batch=100&secret=HOOK_SECRET",
        open_query=True,
    ),
)


def secrets_hidden(url: str) -> str:
    """A sink's URL for people, also when it is not one that can be opened."""
    try:
        return _parse(url, kind_of(url))[0].shown
    except ConfigurationError:
        return f"{url.partition(':')[0][:20]}:..."
