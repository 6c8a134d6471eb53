"""Reads the state of an object for the audit log, before and after a change. Centers only.

One reader per kind of object. A kind without a reader has no state in the log; the row then
shows the body of the call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from skep.center.services import Services
from skep.errors import NotFound

Reader = Callable[[Services, str], Awaitable[Any]]


async def _job(services: Services, name: str) -> Any:
    kept = await services.store.jobs.get(name)
    return {"revision": kept.revision, "deleted": kept.deleted, "job": kept.job}


async def _run(services: Services, name: str) -> Any:
    run = await services.store.runs.get(name)
    return {"state": run.state, "reason": run.reason, "settings": run.settings}


async def _agent(services: Services, name: str) -> Any:
    view = await services.store.agents.get(name)
    shown = view.registration
    return {
        "enabled": view.enabled,
        "aside": view.aside,
        "group": shown.group,
        "labels": shown.labels,
        "version": shown.version,
    }


async def _user(services: Services, name: str) -> Any:
    user = await services.store.users.get(name)
    return {
        "role": user.role,
        "groups": user.groups,
        "disabled": user.disabled,
        "password_set": user.has_password,
    }


async def _group(services: Services, name: str) -> Any:
    groups = await services.store.users.groups()
    return next(({"labels": one.labels} for one in groups if one.name == name), None)


async def _host(services: Services, name: str) -> Any:
    row = await services.store.hosts.get(name)
    return {"rule": row.site.rule}


async def _secret(services: Services, name: str) -> Any:
    view = await services.people.secrets.get(name)
    return {"use": view.use, "key": view.key, "changed_at": view.changed_at}


READERS: dict[str, Reader] = {
    "secret": _secret,
    "job": _job,
    "run": _run,
    "agent": _agent,
    "user": _user,
    "group": _group,
    "host": _host,
}


async def read_state(services: Services, named: str) -> Any:
    """The state of `kind:name`; None for an unknown object and a kind without a reader."""
    kind, _, name = named.partition(":")
    reader = READERS.get(kind)
    if reader is None or not name:
        return None
    try:
        return await reader(services, name)
    except NotFound:
        return None
