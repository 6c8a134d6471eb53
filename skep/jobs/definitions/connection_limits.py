"""The hosts and secrets that connections of a job may use, from the settings. Pure.

Sinks, queries and notices of jobs follow the egress rules of their center. `jobs.allow_hosts`
adds the hosts that the operator of the center allows; `egress.deny` has precedence.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_network
from urllib.parse import urlsplit

from skep.downloaders.egress_policy import EgressPolicy
from skep.errors import ConfigurationError
from skep.model.hosts.named_places import place_of
from skep.settings import Settings
from skep.streams.host_rules import HostRules, JobLimits

EVERYTHING = ("0.0.0.0/0", "::/0")
_REMEDY = "add it to egress.allow"
_OURS = "add the host to jobs.allow_hosts"


class JobHosts:
    """The rules of one center."""

    def __init__(self, settings: Settings) -> None:
        """Raises ConfigurationError for an entry that is not a host."""
        said, egress = settings.jobs.allow_hosts, settings.egress
        networks = tuple(filter(_is_network, said))
        self._hosts = frozenset(_hosts(entry for entry in said if entry not in networks))
        own = [settings.center.port]
        allow = (*egress.allow, *networks)
        self._usual = EgressPolicy(allow, egress.deny, named=egress.named, centers=own)
        self._named = EgressPolicy(EVERYTHING, egress.deny, centers=own)

    def check(self, host: str, port: int, address: str, written: bool) -> str | None:
        """Why this address of a host must not be used; None = it may."""
        name = host.rstrip(".").lower()
        if (name, port) in self._hosts or (name, None) in self._hosts:
            return self._named.check(address, port)
        policy = self._usual.naming_host(host, port) if written else self._usual
        why = policy.check(address, port, place_of(host, port))
        return why and why.replace(_REMEDY, _OURS)


def job_limits(settings: Settings) -> JobLimits:
    """Raises ConfigurationError for a setting that is not a host."""
    rule = JobHosts(settings)
    return JobLimits(HostRules(rule.check), frozenset(settings.jobs.sink_secrets))


def _is_network(text: str) -> bool:
    try:
        ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def _hosts(entries: Iterable[str]) -> Iterable[tuple[str, int | None]]:
    """`host`, `host:port` or `[address]:port`."""
    for entry in entries:
        try:
            parts = urlsplit(f"//{entry}")
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port, parts = None, None, urlsplit("")
        if not host or parts.netloc != entry or set(entry) & set("@ ,%"):
            raise ConfigurationError(
                f"jobs.allow_hosts: {entry!r} is not a host, host:port, address or network"
            )
        yield host.rstrip("."), port
