"""What a connection URL may say to a driver: an allow-list per engine. Pure.

Everything that opens a connection with a URL asks here: sinks and queries, of jobs and of
people. Options that name files, sockets, code or credentials of the process are for people
alone, who type the URL themselves; a job never may use them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from skep.errors import ConfigurationError


class DriverOptions(NamedTuple):
    """Names in the query of a URL, in lower case."""

    allowed: frozenset[str]
    #: Only where a person typed the URL.
    personal: frozenset[str] = frozenset()
    #: The values that jobs may give to some of them.
    values: Mapping[str, frozenset[str]] = {}


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


POSTGRESQL = DriverOptions(
    _names(
        "application_name channel_binding connect_timeout keepalives keepalives_count "
        "keepalives_idle keepalives_interval options ssl_max_protocol_version "
        "ssl_min_protocol_version sslmode sslnegotiation sslrootcert sslsni "
        "target_session_attrs tcp_user_timeout"
    ),
    _names(
        "gssencmode host hostaddr krbsrvname passfile port require_auth service sslcert sslcrl "
        "sslkey sslpassword"
    ),
    {"sslrootcert": _names("system")},
)
MYSQL = DriverOptions(
    _names(
        "charset collation connect_timeout program_name read_timeout ssl_disabled "
        "ssl_verify_cert ssl_verify_identity write_timeout"
    ),
    _names(
        "read_default_file read_default_group ssl_ca ssl_cert ssl_key ssl_key_password unix_socket"
    ),
)
MONGODB = DriverOptions(
    _names(
        "appname authmechanism authsource compressors connecttimeoutms directconnection "
        "heartbeatfrequencyms journal localthresholdms maxidletimems maxpoolsize minpoolsize "
        "readconcernlevel readpreference replicaset retryreads retrywrites "
        "serverselectiontimeoutms sockettimeoutms ssl timeoutms tls w waitqueuetimeoutms "
        "wtimeoutms zlibcompressionlevel"
    ),
    _names(
        "authmechanismproperties tlsallowinvalidcertificates tlsallowinvalidhostnames "
        "tlscafile tlscertificatekeyfile tlscertificatekeyfilepassword tlscrlfile "
        "tlsdisableocspendpointcheck tlsinsecure"
    ),
    {"authmechanism": _names("DEFAULT PLAIN SCRAM-SHA-1 SCRAM-SHA-256")},
)
BY_SCHEME: Mapping[str, DriverOptions] = {
    "postgresql": POSTGRESQL,
    "postgres": POSTGRESQL,
    "mysql": MYSQL,
    "mariadb": MYSQL,
    "mongodb": MONGODB,
    "mongodb+srv": MONGODB,
}
_HOST = re.compile(r"[\w-][\w.-]*|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%\w+)?")
_PLACE = re.compile(r"(?:\[([^\]]*)\]|([^:\[\]]*))(?::(\d{1,5}))?")


def check_options(scheme: str, given: Iterable[tuple[str, str]], *, of_job: bool) -> None:
    """Raises ConfigurationError that names the option, never its value."""
    known = BY_SCHEME.get(scheme, DriverOptions(frozenset()))
    for name, value in given:
        option = name.lower()
        if option in known.personal and of_job:
            raise ConfigurationError(
                f"a job may not set the {scheme} option {name[:60]!r}: it concerns files, "
                "sockets or credentials of the center"
            )
        if option not in known.allowed | known.personal:
            choices = ", ".join(sorted(known.allowed)) or "none"
            raise ConfigurationError(f"unknown {scheme} option {name[:60]!r}; allowed: {choices}")
        values = known.values.get(option)
        if of_job and values is not None and value not in values:
            raise ConfigurationError(
                f"a job may set the {scheme} option {name[:60]!r} only to "
                f"{', '.join(sorted(values))}"
            )


def check_host(host: str | None) -> str:
    """A name or an address: no path of a socket, no list; raises ConfigurationError."""
    if not host or not _HOST.fullmatch(host) or host.lower().endswith(".sock"):
        raise ConfigurationError("the URL must name one host: a name or an address, no socket")
    return host


def host_list(hosts: str, port: int) -> list[tuple[str, int]]:
    """`a,b:9093,[::1]` as (host, port); raises ConfigurationError."""
    found: list[tuple[str, int]] = []
    for part in hosts.split(","):
        match = _PLACE.fullmatch(part)
        if match is None:
            raise ConfigurationError("the URL must name hosts as HOST or HOST:PORT, with commas")
        found.append((check_host(match[1] or match[2]), int(match[3] or port)))
    return found
