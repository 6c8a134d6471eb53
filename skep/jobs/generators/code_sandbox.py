"""Runs a generator's code in a sandboxed child process and reads it as fast as the store allows.

User code never runs inside a center. The sandbox is that of the code downloaders: separate files
and processes, network only through the egress proxy, limits of the kernel. Output of the child
is never trusted unchecked.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from skep.downloaders.code.child_messages import Batch, Breach, Generated, Over, Reader, written
from skep.downloaders.code.child_start import Child, NotStarted, start_child
from skep.downloaders.code.children import FIRST_UID, UIDS
from skep.downloaders.code.egress_proxy import EgressProxy
from skep.downloaders.code.inside.generate import ITEM_BYTES, PREFIX
from skep.downloaders.code.inside.talk import Load
from skep.downloaders.code.isolation import Isolation, detect
from skep.downloaders.code.limit_ceiling import Ceiling
from skep.downloaders.egress_policy import EgressPolicy
from skep.jobs.generators.generator_contract import (
    TIME_LIMIT,
    Batches,
    GeneratorCrashed,
    GeneratorFailed,
)
from skep.model.user_code import Code, CodeLimits
from skep.runtime.clock import Clock
from skep.settings import AgentSettings

log = logging.getLogger(__name__)

PIECE = 256 * 1024
#: Maximum size of one message: a batch ends with the item that makes it large enough.
FRAME_LIMIT = 2 * ITEM_BYTES
#: Characters of the code's output that are reported at its end.
SAID = 500
DEFAULT_CEILING = Ceiling.of(AgentSettings())


@dataclass(frozen=True, slots=True)
class SandboxRequest:
    """The code to run, and its limits."""

    kind: str
    source: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    limits: CodeLimits = field(default_factory=CodeLimits)
    network: bool = False
    #: The code is part of Skep: it may run where code of jobs must not.
    own: bool = False

    @property
    def seconds(self) -> float:
        return self.limits.time or TIME_LIMIT


class CodeSandboxes:
    """Starts up to `most` children at a time. `code` is the setting jobs.code: `boxed`, `always`
    or `never`, as for agents."""

    def __init__(
        self,
        egress: EgressPolicy,
        clock: Clock,
        most: int,
        code: str = "boxed",
        ceiling: Ceiling = DEFAULT_CEILING,
    ) -> None:
        self._egress = egress
        self._clock = clock
        self._code = code
        self._ceiling = ceiling
        self._room = asyncio.Semaphore(most)
        self._isolation: Isolation | None = None
        #: Process ids of active children.
        self.children: set[int] = set()

    async def run(
        self, order: SandboxRequest, wrote: Callable[[str], None] = lambda _: None
    ) -> Batches:
        """The batches of the child; `wrote` gets what its code writes. Raises GeneratorFailed and
        GeneratorCrashed."""
        order = replace(order, limits=self._ceiling.applied(order.limits))
        async with self._room, self._started(order) as (child, isolation):
            deadline = self._clock.monotonic() + order.seconds
            await asyncio.get_running_loop().sock_sendall(
                child.sock, written(_load(order, child.uid, isolation))
            )
            reading = self._read(child, order, deadline, wrote)
            async with aclosing(reading):
                async for batch in reading:
                    yield batch

    @asynccontextmanager
    async def _started(self, order: SandboxRequest) -> AsyncIterator[tuple[Child, Isolation]]:
        isolation = await self._looked_at(own=order.own)
        uid = FIRST_UID + secrets.randbelow(UIDS) if isolation.own_user else 0
        scratch = order.limits.scratch
        starting = asyncio.ensure_future(
            asyncio.to_thread(start_child, isolation, scratch, uid, network=order.network)
        )
        try:
            child = await asyncio.shield(starting)
        except asyncio.CancelledError:
            # End it before the caller continues, because the caller may close the event loop.
            await asyncio.shield(_end_unwanted(starting))
            raise
        except NotStarted as error:
            raise GeneratorCrashed(str(error)) from error
        proxy = EgressProxy(child.listener, self._egress) if child.listener is not None else None
        self.children.add(child.process.pid)
        try:
            if proxy is not None:
                await proxy.open()
            yield child, isolation
        finally:
            self.children.discard(child.process.pid)
            if proxy is not None:
                proxy.close()
            await asyncio.shield(asyncio.to_thread(_end, child))

    async def _looked_at(self, *, own: bool) -> Isolation:
        if self._isolation is None:
            self._isolation = await asyncio.to_thread(detect)
            if self._code == "always" and not self._isolation.boxed:
                log.warning("generators run without a sandbox: %s", self._isolation.why_not)
        if own:
            return self._isolation
        if self._code == "never":
            raise GeneratorFailed("generators with code are disabled here (jobs.code is never)")
        if self._code == "boxed" and not self._isolation.boxed:
            raise GeneratorFailed(
                f"no sandbox for code here: {self._isolation.why_not}; install bubblewrap, or set "
                "jobs.code to always"
            )
        return self._isolation

    async def _read(
        self, child: Child, order: SandboxRequest, deadline: float, wrote: Callable[[str], None]
    ) -> Batches:
        reader, said = Reader(FRAME_LIMIT, Generated), ""
        while piece := await self._received(child, order, deadline):
            try:
                for message in reader.feed(piece):
                    said = (said + message.messages)[-SAID:]
                    if message.messages:
                        wrote(message.messages)
                    if isinstance(message, Batch):
                        yield list(message.items)
                    if isinstance(message, Over):
                        _judge(message, said)
                        return
            except Breach as breach:
                raise GeneratorFailed(f"it sent an invalid message: {breach}") from breach
        ending = await asyncio.to_thread(child.ending)
        raise GeneratorCrashed(f"its process ended with {ending}{_with(said)}")

    async def _received(self, child: Child, order: SandboxRequest, deadline: float) -> bytes:
        left = deadline - self._clock.monotonic()
        try:
            async with asyncio.timeout(max(left, 0.0)):
                return await asyncio.get_running_loop().sock_recv(child.sock, PIECE)
        except TimeoutError:
            raise GeneratorFailed(f"it took longer than its {order.seconds:g} s") from None
        except ConnectionError:
            return b""


def _judge(over: Over, said: str) -> None:
    if over.failure:
        why = {"limit": "limit exceeded: "}.get(over.failure, "")
        raise GeneratorFailed(f"{why}{over.detail}{_with(said)}")


def _with(said: str) -> str:
    lines = " | ".join(line for line in said.splitlines() if line.strip())
    return f"; it wrote: {lines}" if lines else ""


def _load(order: SandboxRequest, uid: int, isolation: Isolation) -> Load:
    limits = order.limits
    countable = isolation.boxed or isolation.own_user
    return Load(
        f"{PREFIX}{order.kind}", order.source, Code(order.source or "-").version, uid,
        isolation.boxed, order.seconds, limits.memory, 0,
        limits.scratch, limits.files, limits.processes if countable else -1,
        dict(order.arguments),
    )  # fmt: skip


async def _end_unwanted(starting: asyncio.Future[Child]) -> None:
    """End a child that was started after its generator had been stopped."""
    with suppress(NotStarted):
        await asyncio.to_thread(_end, await starting)


def _end(child: Child) -> None:
    child.kill()
    child.reap()
