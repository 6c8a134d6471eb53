"""A double of an agent that hosts applications: it follows the desired state and reports.

For tests of the center, over real HTTP and a real WebSocket. It starts no process: a test defines
how an instance ends and what it writes.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec

from skep.model.fleet.agent import Registration
from skep.model.jobs.app import APP_KIND, IMAGE_KIND, INSTANCE_ENDS, InstanceState
from skep.testing.grounds.centers import Answer, Caller
from skep.wire import messages

Key = tuple[str, int]
HEARTBEAT_SECONDS = 0.2
_command = msgspec.msgpack.Decoder(messages.Command)


@dataclass
class Hosted:
    """One instance on this agent."""

    wish: messages.AppWish
    state: InstanceState = InstanceState.RUNNING
    starts: int = 1
    exit_code: int | None = None
    reason: str = ""
    written: int = 0

    def report(self) -> messages.AppReport:
        wish = self.wish
        return messages.AppReport(
            wish.run,
            wish.no,
            wish.token,
            self.state,
            wish.round,
            self.starts,
            self.exit_code,
            self.reason,
        )

    def execute(self, wish: messages.AppWish) -> bool:
        """Apply a desired state; returns whether something changed."""
        before = self.report()
        if wish.round > self.wish.round:
            self.starts, self.state = self.starts + 1, InstanceState.RUNNING
        self.wish = wish
        if self.state not in INSTANCE_ENDS:
            self.state = wish.state
        return self.report() != before


class ManualAppAgent:
    """Registers, sends heartbeats, listens for `apps`, and polls while it hosts instances."""

    def __init__(self, caller: Caller, name: str, **about: Any) -> None:
        about = {"kinds": ("http", APP_KIND, IMAGE_KIND), **about}
        self.id = name
        self.caller = caller
        self.about = Registration(name, name, **about)
        self.has: dict[Key, Hosted] = {}
        #: Names of the commands that were pushed.
        self.commands: list[str] = []
        self._lock = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, *, listens: bool = True) -> ManualAppAgent:
        assert (await self.call("register", messages.Register(self.about))).status == 200
        await self.heartbeat()
        self._tasks = [asyncio.create_task(self._go_on())]
        if listens:
            await self.listen()
        return self

    async def listen(self) -> None:
        """Receive commands from now on."""
        heard = asyncio.Event()
        self._tasks.append(asyncio.create_task(self._listen(heard)))
        await heard.wait()

    async def call(self, name: str, body: Any) -> Answer:
        return await self.caller.packed(f"/node/{name}", body)

    async def heartbeat(self) -> None:
        await self.call("heartbeat", messages.Heartbeat(self.id))
        if self.has:
            await self.ask()

    async def _go_on(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            with suppress(aiohttp.ClientError):  # its center is down
                await self.heartbeat()

    async def _listen(self, heard: asyncio.Event) -> None:
        async with self.caller.socket(self.id) as socket:
            heard.set()
            async for message in socket:
                command = _command.decode(message.data)
                self.commands.append(command.name)
                if command.name == "apps":
                    await self.ask()

    async def die(self) -> None:
        """Send no more heartbeats and reports."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def ask(self) -> list[messages.AppWish]:
        """Report everything, apply the desired state, and repeat until nothing changes."""
        async with self._lock:
            while True:
                wanted = await self.told([one.report() for one in self.has.values()])
                if not self._execute(wanted):
                    return wanted

    async def told(self, reports: list[messages.AppReport]) -> list[messages.AppWish]:
        answer = await self.call("apps", messages.AppsAsk(self.id, reports))
        return answer.read(messages.AppsReply).wanted

    def _execute(self, wanted: list[messages.AppWish]) -> bool:
        before = len(self.has)
        tokens = {(wish.run, wish.no): wish.token for wish in wanted}
        self.has = {key: one for key, one in self.has.items() if tokens.get(key) == one.wish.token}
        changed = len(self.has) != before
        for wish in wanted:
            one = self.has.get((wish.run, wish.no))
            if one is not None:
                changed |= one.execute(wish)
            elif wish.state is not InstanceState.STOPPED:
                self.has[wish.run, wish.no] = Hosted(wish, wish.state)
                changed = True
        return changed

    async def end(self, key: Key, code: int, reason: str = "") -> None:
        """The program ends by itself and is not restarted."""
        one = self.has[key]
        one.state = InstanceState.FAILED if code else InstanceState.DONE
        one.exit_code, one.reason = code, reason
        await self.ask()

    async def write(self, key: Key, data: bytes) -> int:
        """The program writes; returns the next offset that the center expects."""
        one = self.has[key]
        piece = messages.AppLog(self.id, *key, one.wish.token, one.written, data)
        one.written = (await self.call("app-log", piece)).read(messages.AppLogReply).next
        return one.written
