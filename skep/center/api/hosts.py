"""Hosts, for users: politeness, results, and rules for them.

Run by centers. A rule is stored and applies to every agent and every run.
"""

from __future__ import annotations

import re

from skep.center.api.listing import listed
from skep.center.http.authentication import Role
from skep.center.http.endpoint import Call, Endpoint
from skep.errors import InvalidInput, NotFound
from skep.model.hosts.host import SiteRule, SiteView, site_of
from skep.model.message_bounds import is_printable
from skep.model.run import RunSettings
from skep.store.ports.hosts import HostRow
from skep.wire.api.hosts import CLEAR_SITE, GET_SITE, LIST_SITES, SET_SITE, HostPage, Sites

#: Names and addresses as in a URL; an IPv6 address in brackets.
_HOST = re.compile(r"\[[0-9a-f:.]{2,45}\]|[a-z0-9_-][a-z0-9._-]{0,252}", re.IGNORECASE)
HOSTS = {"host": {"type": "string", "pattern": f"^({_HOST.pattern.replace('a-z', 'A-Za-z')})$"}}
_USUAL = RunSettings()


def host_name(call: Call) -> str:
    """A host as it is stored; raises InvalidInput."""
    text: str = call.path["host"]
    if not _HOST.fullmatch(text):
        raise InvalidInput(
            f"{text[:70]!r} is not a valid host; send a name or an address without scheme and port"
        )
    return site_of(text)


def _view(call: Call, row: HostRow) -> SiteView:
    site = row.site
    now = call.services.clock.now()
    return SiteView(
        host=site.host,
        rule=site.rule,
        pace=call.services.politeness.pace(site, _USUAL, now),
        crawl_delay=site.crawl_delay,
        cooling_until=site.cooling_until if site.cooling_until > now else 0.0,
        reason=site.reason,
        strikes=site.strikes,
        requests=row.requests,
        failed=row.failed,
        refused=row.refused,
        barred=row.barred,
        deferred=row.deferred,
        received=row.received,
        latency=row.elapsed_us / 1e6 / row.requests if row.requests else 0.0,
        last_at=row.last_at,
        agent=row.agent,
        run=row.run,
        block=row.block,
    )


async def list_sites(call: Call) -> Sites:
    """Every host that was contacted or has a rule."""
    page: HostPage = call.query
    if not is_printable(page.after):
        raise InvalidInput("`after` is not a host name; send the `next` of the last page")
    if page.filter is not None:
        items, more = await listed(call, "hosts")
        return Sites([_view(call, row) for row in items], **more)
    found = await call.services.store.hosts.all(page.limit, page.after)
    following = found[-1].site.host if len(found) == page.limit else ""
    return Sites([_view(call, row) for row in found], following)


async def get_site(call: Call) -> SiteView:
    """One host; its rate limit is that of a run with default settings."""
    return _view(call, await call.services.store.hosts.get(host_name(call)))


async def put_site(call: Call) -> SiteView:
    """Set the rule of a host; fields that are not set have their defaults."""
    rule: SiteRule = call.body
    host = host_name(call)
    await call.services.store.hosts.set_rule(host, rule, call.services.clock.now())
    call.services.signals.dispatcher.request()
    return await get_site(call)


async def clear_site(call: Call) -> SiteView:
    """Delete the rule of a host and what was learned about it, including cooling; counts stay."""
    await call.services.store.hosts.clear(host_name(call), call.services.clock.now())
    call.services.signals.dispatcher.request()
    return await get_site(call)


ENDPOINTS = (
    Endpoint(
        LIST_SITES, Role.VIEWER, list_sites, "List hosts", errors=(InvalidInput,), tag="sites"
    ),
    Endpoint(
        GET_SITE,
        Role.VIEWER,
        get_site,
        "Show a host",
        errors=(InvalidInput, NotFound),
        tag="sites",
        parameters=HOSTS,
    ),
    Endpoint(
        SET_SITE,
        Role.OPERATOR,
        put_site,
        "Set the rule of a host",
        errors=(InvalidInput,),
        tag="sites",
        parameters=HOSTS,
        notes="Replaces the whole rule; fields that are not set have their defaults.",
    ),
    Endpoint(
        CLEAR_SITE,
        Role.OPERATOR,
        clear_site,
        "Clear a host",
        errors=(InvalidInput, NotFound),
        tag="sites",
        parameters=HOSTS,
        notes="Deletes its rule, what was learned about it and its cooling; counts stay.",
    ),
)
