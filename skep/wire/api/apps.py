"""Instances of applications and their logs: types and routes."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from skep.model.jobs.app import Instance, InstanceState
from skep.wire.api.caller import Resource
from skep.wire.api.route import Route

WAIT_MAX = 30.0


class InstanceLine(msgspec.Struct):
    """An instance, and its desired state."""

    instance: Instance
    wanted: InstanceState


class Instances(msgspec.Struct):
    """Sorted by number; empty before the run's package is ready."""

    items: list[InstanceLine]


class LogAsk(msgspec.Struct):
    """First byte, negative counted from the end; maximum bytes; and seconds to wait for the first
    byte."""

    #: First byte to read; a negative number counts from the end.
    start: Annotated[int, Meta(ge=-(2**62), le=2**62)] = msgspec.field(default=0, name="from")
    #: Maximum number of bytes.
    limit: Annotated[int, Meta(ge=1, le=4 * 2**20)] = 2**18
    #: Seconds to wait for the first byte; 0 = answer at once.
    wait: Annotated[float, Meta(ge=0, le=WAIT_MAX)] = 0.0


class LogText(msgspec.Struct):
    """A part of a log. Bytes that are not UTF-8 are shown as replacement characters."""

    text: str
    #: Its start and end in the whole log; continue with `from=next`.
    start: int
    next: int
    #: The current end of the whole log.
    end: int
    #: Offset of the oldest byte that is kept, which is the number of deleted bytes; and bytes
    #: that agents dropped.
    deleted: int
    lost: int
    #: The instance has ended, and this is the end of its log.
    over: bool


LIST_INSTANCES = Route("list_instances", "GET", "/api/v1/runs/{run}/instances", Instances)
GET_INSTANCE_LOG = Route(
    "get_instance_log", "GET", "/api/v1/runs/{run}/instances/{no}/log", LogText, asks=LogAsk
)
RESTART_INSTANCE = Route(
    "restart_instance", "POST", "/api/v1/runs/{run}/instances/{no}/restart", InstanceLine
)
STOP_INSTANCE = Route(
    "stop_instance", "POST", "/api/v1/runs/{run}/instances/{no}/stop", InstanceLine
)


class AppsClient(Resource):
    """Calls the routes of this file."""

    async def instances(self, run: str) -> Instances:
        """List instances of an application."""
        return await self._caller.call(LIST_INSTANCES, run)

    async def log(self, run: str, no: int, asks: LogAsk | None = None) -> LogText:
        """Read the log of an instance."""
        return await self._caller.call(GET_INSTANCE_LOG, run, no, asks=asks)

    async def restart(self, run: str, no: int) -> InstanceLine:
        """Start an instance anew."""
        return await self._caller.call(RESTART_INSTANCE, run, no)

    async def stop(self, run: str, no: int) -> InstanceLine:
        """Stop an instance until it is restarted."""
        return await self._caller.call(STOP_INSTANCE, run, no)
