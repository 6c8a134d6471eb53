"""Instances of applications: list, read logs, stop, restart.

Run by centers. The desired state is written to the store and sent to the agent; an answer
never means that the agent has established it already.
"""

from __future__ import annotations

from typing import Any

import msgspec

from skep.center.api.path_names import RUN_NAMES, number, run_name
from skep.center.http.authentication import LOOK_ONLY, Role
from skep.center.http.endpoint import Call, Endpoint, Scoping
from skep.errors import Conflict, InvalidInput, NotFound, UnknownRun
from skep.jobs.apps.app_supervisor import APPS
from skep.model.jobs.app import Instance, desired_state_for
from skep.model.run import Run
from skep.store.ports.apps import LogPart
from skep.wire.api.apps import (
    GET_INSTANCE_LOG,
    LIST_INSTANCES,
    RESTART_INSTANCE,
    STOP_INSTANCE,
    InstanceLine,
    Instances,
    LogText,
)
from skep.wire.api.route import Route
from skep.wire.messages import Command

#: Seconds between two checks of a log that a caller waits for.
LOOK_AGAIN = 0.25
#: Bytes of a log that are searched for secrets at once; a longer line is not shown.
LINE_LIMIT = 2**18
_LONG_LINE = b"(a line that is too long to be shown)"
_MOST = 2**31 - 1
_NUMBERS: dict[str, Any] = {
    **RUN_NAMES,
    "no": {"type": "integer", "minimum": 0, "maximum": _MOST},
}


async def list_instances(call: Call) -> Instances:
    """The instances of a run of an application."""
    run = await call.services.store.runs.get(run_name(call.path["run"]))
    found = await call.services.store.apps.of(run.id)
    return Instances([_line(run, one) for one in found])


def _line(run: Run, one: Instance) -> InstanceLine:
    return InstanceLine(one, desired_state_for(run.state, one.halted))


async def instance_log(call: Call) -> LogText:
    """What an instance wrote, on all agents that it ran on."""
    run, no, query = run_name(call.path["run"]), _number(call), call.query
    clock = call.services.clock
    deadline = clock.monotonic() + query.wait
    while True:
        one = await _instance(call, run, no)
        part = await _part(call, run, no)
        quiet = clock.monotonic() >= deadline or one.ended or call.services.closing.is_set()
        if part.data or quiet or await call.gone():
            break
        await clock.sleep(LOOK_AGAIN)
    data = whole_characters(part.data) if part.start + len(part.data) < part.log_end else part.data
    following = part.start + len(data)
    return LogText(
        data.decode(errors="replace"),
        part.start,
        following,
        part.log_end,
        part.log_start,
        part.lost,
        one.ended and following >= part.log_end,
    )


async def _part(call: Call, run: str, no: int) -> LogPart:
    """The requested part. Callers who may only read get whole lines, because a secret that the
    caller's limits cut in two would not be found."""
    read, query = call.services.store.apps.read_log, call.query
    if call.who.role not in LOOK_ONLY:
        return await read(run, no, query.start, query.limit)
    part = await read(run, no, query.start, max(query.limit, LINE_LIMIT))
    before = b"\n"
    if part.start > part.log_start:
        before = (await read(run, no, part.start - 1, 1)).data
    return whole_lines(part, before)


def whole_lines(part: LogPart, before: bytes) -> LogPart:
    """The part without the rest of a line that begins before it, and without the beginning of a
    line that does not end in it. `before` is the byte in front of the part."""
    start = 0 if before == b"\n" else part.data.find(b"\n") + 1 or len(part.data)
    end = len(part.data)
    if part.start + end < part.log_end:
        end = part.data.rfind(b"\n", start) + 1 or end
    data = part.data[start:end]
    if data and end - start >= LINE_LIMIT and b"\n" not in data:
        data = _LONG_LINE.ljust(len(data))
    return msgspec.structs.replace(part, start=part.start + start, data=data)


def whole_characters(data: bytes) -> bytes:
    """The data without the beginning of a character that ends in the next part."""
    for back in range(1, min(4, len(data))):
        lead = data[-back]
        if lead >= 0xC0:  # noqa: PLR2004 - the first byte of several
            length = 2 + (lead >= 0xE0) + (lead >= 0xF0)  # noqa: PLR2004
            return data[:-back] if back < length else data
        if lead < 0x80:  # noqa: PLR2004 - a complete character
            return data
    return data


async def restart_instance(call: Call) -> InstanceLine:
    """Restart an instance."""
    run, no = run_name(call.path["run"]), _number(call)
    await call.services.store.runs.get(run)
    one = await call.services.store.apps.restart(run, no, call.services.clock.now())
    return await _changed(call, one)


async def stop_instance(call: Call) -> InstanceLine:
    """Stop an instance until it is restarted."""
    run, no = run_name(call.path["run"]), _number(call)
    await call.services.store.runs.get(run)
    one = await call.services.store.apps.stop(run, no, call.services.clock.now())
    return await _changed(call, one)


async def _changed(call: Call, one: Instance) -> InstanceLine:
    call.services.signals.runs.wake(one.run)
    if one.agent:
        await call.services.hub.send(one.agent, Command(APPS))
    return _line(await call.services.store.runs.get(one.run), one)


async def _instance(call: Call, run: str, no: int) -> Instance:
    """Raises UnknownRun and NotFound."""
    for one in await call.services.store.apps.of(run):
        if one.no == no:
            return one
    await call.services.store.runs.get(run)
    raise NotFound(f"run {run} has no instance {no}")


def _number(call: Call) -> int:
    found = number(call.path["no"])
    if found > _MOST:
        raise InvalidInput(f"{found} is not a valid instance number")
    return found


def _row(route: Route[Any], handler: Any, role: Role, summary: str, notes: str = "") -> Endpoint:
    errors = (InvalidInput, UnknownRun, NotFound, Conflict)[: 4 if route.method == "POST" else 3]
    return Endpoint(
        route,
        role,
        handler,
        summary,
        errors=errors,
        tag="apps",
        scoped=Scoping.RUN,
        parameters=_NUMBERS,
        notes=notes,
    )


ENDPOINTS = (
    _row(LIST_INSTANCES, list_instances, Role.VIEWER, "List instances of an application"),
    _row(
        GET_INSTANCE_LOG,
        instance_log,
        Role.VIEWER,
        "Read the log of an instance",
        "With `wait`, the answer is sent as soon as there is something to read.",
    ),
    _row(RESTART_INSTANCE, restart_instance, Role.OPERATOR, "Restart an instance"),
    _row(STOP_INSTANCE, stop_instance, Role.OPERATOR, "Stop an instance until it is restarted"),
)
