"""What a job may say to a driver: names that are known to be harmless, and nothing else."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

import psycopg
import pymysql
import pytest
from psycopg import pq
from pymongo import common as pymongo_options

from skep.errors import ConfigurationError, InvalidInput
from skep.jobs.definitions.connection_limits import job_limits
from skep.jobs.generators.sql_source import check_sql
from skep.model.jobs.job import Generator
from skep.settings import EgressSettings, JobsSettings, Settings
from skep.streams import driver_options
from skep.streams.host_rules import UNCONNECTED
from skep.streams.registry import open_sink

#: Files, sockets, code, credentials, or another server: never for a job.
DANGEROUS = {
    "mysql": """
        local_infile read_default_file read_default_group unix_socket ssl ssl_ca ssl_cert ssl_key
        ssl_key_password init_command auth_plugin_map server_public_key client_flag conv
        cursorclass bind_address named_pipe plugin host port user password passwd db database
        defer_connect sql_mode autocommit
    """,
    "postgresql": """
        host hostaddr port user password dbname passfile service servicefile sslcert sslkey sslcrl
        sslcrldir sslpassword sslkeylogfile krbsrvname gsslib gssencmode gssdelegation
        requirepeer require_auth replication load_balance_hosts cursor_factory context row_factory
        autocommit plugin conninfo
    """,
    "mongodb": """
        tlscafile tlscertificatekeyfile tlscertificatekeyfilepassword tlscrlfile ssl_ca_certs
        authmechanismproperties srvservicename srvmaxhosts loadbalanced tlsinsecure
        tlsallowinvalidcertificates tlsallowinvalidhostnames auto_encryption_opts server_api
        event_listeners server_selector unicode_decode_error_handler
    """,
}


def _of_pymysql() -> Iterable[str]:
    yield from inspect.signature(pymysql.connections.Connection.__init__).parameters


def _of_psycopg() -> Iterable[str]:
    yield from (option.keyword.decode() for option in pq.Conninfo.get_defaults())
    yield from inspect.signature(psycopg.Connection.connect).parameters


def _of_pymongo() -> Iterable[str]:
    yield from pymongo_options.VALIDATORS
    yield from pymongo_options.URI_OPTIONS_VALIDATOR_MAP


ALL = {"mysql": _of_pymysql, "postgresql": _of_psycopg, "mongodb": _of_pymongo}
REFUSED = sorted(
    (scheme, name)
    for scheme, names in ALL.items()
    for name in {each.lower() for each in (*names(), *DANGEROUS[scheme].split())}
    if name not in driver_options.BY_SCHEME[scheme].allowed and name not in {"self", "cls"}
)


def test_the_allowed_are_none_of_the_dangerous() -> None:
    """S1: an option that reads files or changes the server is on no list for jobs."""
    for scheme, names in DANGEROUS.items():
        assert not driver_options.BY_SCHEME[scheme].allowed & set(names.split())
    assert len(REFUSED) > 80


@pytest.mark.parametrize(("scheme", "option"), REFUSED)
def test_every_other_option_is_refused(scheme: str, option: str) -> None:
    """S1, S5: enumerated from the drivers themselves, for sinks and for queries."""
    for spelled in (option, option.upper(), option.replace("l", "%6C", 1)):
        url = f"{scheme}://me@203.0.113.1/db?{spelled}=1"
        with pytest.raises(ConfigurationError, match="option"):
            open_sink(url, limits=UNCONNECTED)
        if scheme != "mongodb":
            with pytest.raises(InvalidInput, match="option"):
                check_sql(Generator("sql", url=url, query="SELECT 1"))


@pytest.mark.parametrize(
    "url",
    [
        "mysql://me@203.0.113.1/db?table=t&key=k&ssl_verify_identity=true&connect_timeout=3",
        "postgresql://me@203.0.113.1/db?sslmode=verify-full&sslrootcert=system&options=-cx%3D1",
        "mongodb://me@203.0.113.1,203.0.113.2:27018/db?replicaSet=a&authSource=admin&tls=true",
        "redis://203.0.113.1/0?list=a",
        "kafka://me:pw@203.0.113.1,b:9093/topic?mechanism=SCRAM-SHA-512",
        "https://203.0.113.1/hook?batch=3&token=x",
    ],
)
def test_what_is_documented_is_taken(url: str) -> None:
    open_sink(url, limits=UNCONNECTED)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me@%2Fvar%2Frun%2Fpostgresql/db",
        "postgresql://me@%40abstract/db",
        "postgresql://me@203.0.113.1,203.0.113.2/db",
        "postgresql://me@203.0.113.1/db?sslrootcert=/etc/passwd",
        "postgresql://me@203.0.113.1/db?sslmode=a&sslmode=b",
        "mysql://me@%2Ftmp%2Fmysql.sock/db",
        "mongodb://%2Ftmp%2Fmongodb-27017.sock/db",
        "mongodb://a,%2Ftmp%2Fmongodb-27017.sock/db",
        "mongodb://a/db?authMechanism=MONGODB-AWS",
        "mongodb://a/db?authMechanism=GSSAPI",
        "kafka://%2Ftmp%2Fx/topic",
        "kafka://a/topic?mechanism=GSSAPI",
        "redis://a/0?list=a&unix_socket_path=/tmp/x",
    ],
)
def test_no_sockets_no_lists_no_credentials_of_the_machine(url: str) -> None:
    """S5: what connects as the center's user is refused."""
    with pytest.raises(ConfigurationError):
        open_sink(url, limits=UNCONNECTED)


def test_a_person_may_name_own_files() -> None:
    for url in (
        "postgresql://me@db/x?sslrootcert=/etc/ssl/own.pem&passfile=/run/own.pgpass",
        "mysql://me@db/x?ssl_ca=/etc/ssl/own.pem",
        "mongodb://db/x?tlsCAFile=/etc/ssl/certs/ca-certificates.crt",
    ):
        open_sink(url)
    with pytest.raises(ConfigurationError, match="unknown mysql option 'local_infile'"):
        open_sink("mysql://me@db/x?local_infile=1")


def test_jobs_sign_only_with_listed_variables() -> None:
    """S6: `secret=NAME` is not a way to learn what a variable holds."""
    environment = {"HOOK": "s3cret", "AWS_SECRET_ACCESS_KEY": "AKIA"}
    limits = job_limits(Settings(jobs=JobsSettings(sink_secrets=("HOOK",))))
    open_sink("https://h/?secret=HOOK", environment=environment, limits=limits)
    with pytest.raises(ConfigurationError, match=r"jobs\.sink_secrets"):
        open_sink("https://h/?secret=AWS_SECRET_ACCESS_KEY", environment=environment, limits=limits)


def test_hosts_that_the_operator_allows() -> None:
    jobs = JobsSettings(allow_hosts=("127.0.0.1:6379", "LocalHost.", "10.0.0.0/8", "[::1]:5432"))
    rules = job_limits(Settings(jobs=jobs)).hosts
    assert rules.addresses("127.0.0.1", 6379) == ["127.0.0.1"]
    assert "127.0.0.1" in rules.addresses("localhost", 1)
    assert rules.addresses("10.1.2.3", 1) == ["10.1.2.3"]
    assert rules.addresses("::1", 5432) == ["::1"]
    for host, port in (("127.0.0.1", 6380), ("127.0.0.2", 6379), ("::1", 1), ("192.168.0.1", 1)):
        with pytest.raises(ConfigurationError, match=r"not allowed.*jobs\.allow_hosts"):
            rules.addresses(host, port)


def test_deny_wins() -> None:
    egress = EgressSettings(deny=("127.0.0.0/8",))
    jobs = JobsSettings(allow_hosts=("localhost", "127.0.0.1"))
    rules = job_limits(Settings(jobs=jobs, egress=egress)).hosts
    for host in ("127.0.0.1", "127.1"):
        with pytest.raises(ConfigurationError, match=r"egress\.deny"):
            rules.addresses(host, 1)


@pytest.mark.parametrize("entry", ["", "a b", "http://a", "a:port", "u@a", "a/b", "a:70000"])
def test_a_host_that_is_none_stops_the_start(entry: str) -> None:
    with pytest.raises(ConfigurationError, match=r"jobs\.allow_hosts"):
        job_limits(Settings(jobs=JobsSettings(allow_hosts=(entry,))))
