"""The roster: agents as this center sees them. Run by centers only.

Alive means that the last heartbeat, as received by a center, is younger than `alive_after`. The
clocks of agents are never trusted. After a start or an outage of the store heartbeats could not be
stored, so no agent is declared dead before a full `alive_after` has passed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from math import inf
from typing import NamedTuple

from msgspec.structs import replace

from skep.errors import Fenced, UnknownAgent
from skep.model.downloader_kinds import HTTP
from skep.model.fleet.agent import AgentView, Arrival, Registration, Vitals
from skep.model.fleet.placement import kind_target, own_target
from skep.runtime.batcher import Batcher
from skep.runtime.clock import Clock
from skep.settings import CenterSettings
from skep.store.ports import Store

#: Seconds by which wall clock and monotonic clock may differ between two checks.
CLOCK_JUMP = 2.0
#: Seconds for which changes are read again: other centers have their own clocks.
NEWS_MARGIN = 60.0


class _ReceivedHeartbeat(NamedTuple):
    """A heartbeat and the time of its arrival."""

    agent: str
    vitals: Vitals
    session: int
    at: float


class Roster:
    """Registers agents, takes heartbeats, and finds dead agents."""

    def __init__(
        self,
        settings: CenterSettings,
        store: Store,
        clock: Clock,
        kinds: Sequence[str] = (),
        *,
        beats_every: float | None = None,
    ) -> None:
        """`kinds`: every kind of downloader that a run can use. `beats_every`: heartbeats are
        written together, at most once in this many seconds; None = each separately."""
        self._kinds = tuple(dict.fromkeys((HTTP.name, *kinds)))
        self._settings = settings
        self._store = store
        self._clock = clock
        self._hearing_since = clock.monotonic()
        self._drift = clock.now() - clock.monotonic()
        self._views: dict[str, AgentView] = {}
        #: Kinds that any agent offers.
        self._offered: set[str] = set()
        #: Agents that had timed out at the last check, and the time of the check.
        self._silent: set[str] = set()
        self._looked_at = -inf
        self._news_since = 0.0
        #: The newest command that each agent has acknowledged.
        self._obeyed: dict[str, int] = {}
        self._beats: Batcher[_ReceivedHeartbeat, bool] | None = None
        if beats_every is not None:
            self._beats = Batcher(self._write_heartbeats, beats_every)

    async def register(
        self, registration: Registration, arrival: Arrival | None = None
    ) -> AgentView:
        """Raises Fenced for a process that is no longer the agent."""
        came = replace(arrival or Arrival(), alive_after=self._settings.alive_after)
        view = await self._store.agents.register(registration, self._clock.now(), came)
        self._views[view.id] = view
        self._offered.update(view.registration.kinds)
        self._obeyed.pop(view.id, None)
        self._silent.discard(view.id)
        return view

    async def heartbeat(self, agent: str, vitals: Vitals, age: float, session: int = 0) -> bool:
        """False when the agent must register. A heartbeat that is too old is ignored. Raises Fenced
        for a process that is no longer the agent."""
        if not self.fresh(age):
            return await self.known(agent)
        heard = _ReceivedHeartbeat(agent, vitals, session, self._clock.now())
        if self._beats is not None:
            known = await self._beats.ask(agent, heard)
        else:
            [known] = await self._write_heartbeats([heard])
        if not known:
            self._views.pop(agent, None)
            await self.known(agent)
            self.check_session(agent, session)
            return False
        self._silent.discard(agent)
        view = self._views.get(agent)
        if view is not None:
            self._views[agent] = replace(view, seen_at=heard.at, vitals=vitals)
        return True

    async def _write_heartbeats(self, beats: list[_ReceivedHeartbeat]) -> list[bool]:
        """True for known agents. All get the time of the oldest heartbeat: no agent may seem
        to have lived longer than it did."""
        now = min(beat.at for beat in beats)
        sessions = {beat.agent: beat.session for beat in beats}
        vitals = [(beat.agent, beat.vitals) for beat in beats]
        unknown = set(await self._store.agents.heartbeat(vitals, now, sessions))
        return [beat.agent not in unknown for beat in beats]

    def check_session(self, agent: str, session: int) -> None:
        """Raises Fenced, by what this center knows; the store is read where it matters."""
        view = self._views.get(agent)
        if view is not None and 0 < session < view.session:
            raise Fenced(
                f"agent {agent} runs elsewhere as session {view.session}; this process is"
                f" session {session}: its folder was copied or moved"
            )

    async def still(self, agent: str, session: int) -> bool:
        """Whether that process is the agent, according to the store."""
        if not session:
            return True
        view = self._views[agent] = await self._store.agents.get(agent)
        return session >= view.session

    @property
    def alive_after(self) -> float:
        """Seconds after its last heartbeat for which an agent counts as alive."""
        return self._settings.alive_after

    @property
    def views(self) -> list[AgentView]:
        """All agents, as of the last check."""
        return list(self._views.values())

    async def note_acknowledged(self, agent: str, order: int) -> None:
        """A heartbeat acknowledges every command up to this one. Written once, whether or not this
        center knows the command: another center may just have given it."""
        if order and self._obeyed.get(agent) != order:
            await self._store.agents.acknowledged(agent, order, self._clock.now())
            self._obeyed[agent] = order
            await self.look(agent)

    def view(self, agent: str) -> AgentView | None:
        """As of the last check; None when it is not known."""
        return self._views.get(agent)

    async def look(self, agent: str) -> AgentView:
        """Read from the store; raises UnknownAgent."""
        view = self._views[agent] = await self._store.agents.get(agent)
        self._offered.update(view.registration.kinds)
        return view

    def fresh(self, age: float) -> bool:
        """Whether a heartbeat that is `age` seconds old still proves that its agent is alive."""
        return age < self._settings.alive_after

    async def known(self, agent: str) -> bool:
        """Whether it has ever registered; does not read all rows for a new one."""
        if agent not in self._views:
            with contextlib.suppress(UnknownAgent):
                await self.look(agent)
        return agent in self._views

    async def refresh(self) -> list[AgentView]:
        """Read all agents again; other centers get some of the heartbeats."""
        now = self._clock.now()
        views = await self._store.agents.all()
        self._views = {view.id: view for view in views}
        self._offered = {kind for view in views for kind in view.registration.kinds}
        self._note_silence(views, now)
        return views

    async def look_around(self) -> None:
        """Read changes: agents that changed, and silent ones. All others have sent a heartbeat, to
        this or another center; the exact time is not known before `refresh`."""
        if self._looked_at == -inf:
            await self.refresh()
            return
        now, alive_after = self._clock.now(), self._settings.alive_after
        news = await self._store.agents.news(self._news_since, now - alive_after, now + alive_after)
        for view in news:
            self._views[view.id] = view
            self._offered.update(view.registration.kinds)
        self._note_silence(news, now)

    def _note_silence(self, views: Iterable[AgentView], now: float) -> None:
        self._silent = {view.id for view in views if self._is_silent(view, now)}
        self._looked_at = self._clock.monotonic()
        self._news_since = now - NEWS_MARGIN

    @property
    def silent(self) -> frozenset[str] | None:
        """All silent agents; None when the last check was too long ago."""
        return frozenset(self._silent) if self._looked_lately else None

    def alive(self, agent: str) -> bool:
        """Whether an agent is known and has not timed out."""
        view = self._views.get(agent)
        if view is None or self._looked_lately:
            return view is not None and agent not in self._silent
        return not self._is_silent(view, self._clock.now())

    @property
    def _looked_lately(self) -> bool:
        return self._clock.monotonic() - self._looked_at < self._settings.alive_after

    def deaf(self) -> None:
        """Heartbeats could not be stored: the missing ones are not the agents' fault."""
        self._hearing_since = self._clock.monotonic()

    @property
    def may_judge(self) -> bool:
        """Whether this center has listened long enough to declare an agent dead.

        After a change of this machine's clock, every age is wrong until all agents have sent a
        heartbeat: the time before counts as not having listened.
        """
        drift = self._clock.now() - self._clock.monotonic()
        if abs(drift - self._drift) > CLOCK_JUMP:
            self._drift = drift
            self.deaf()
        heard_for = self._clock.monotonic() - self._hearing_since
        return heard_for >= self._settings.alive_after

    @property
    def judges_in(self) -> float:
        """Seconds until an agent can be declared dead; 0 = now."""
        if self.may_judge:
            return 0.0
        heard_for = self._clock.monotonic() - self._hearing_since
        return max(self._settings.alive_after - heard_for, 0.0)

    async def dead(self) -> list[str]:
        """Agents that have timed out; none while this center cannot judge."""
        if not self.may_judge:
            return []
        await self.look_around()
        return sorted(self._silent)

    def given_up(self, agent: str) -> bool:
        """Whether it was declared dead and sent no heartbeat since: it would lose its leases."""
        return agent in self._silent and self.may_judge

    def _is_silent(self, view: AgentView, now: float) -> bool:
        # A last heartbeat far in the future was written before a clock was set back.
        alive_after = self._settings.alive_after
        return not view.alive(now, alive_after) or view.seen_at - now >= alive_after

    async def may_work(self, agent: str) -> bool:
        """Whether it is registered and not disabled by a user."""
        return await self.known(agent) and self._views[agent].enabled

    def targets(self, agent: str, kinds: Sequence[str] | None = None) -> list[str]:
        """Targets of the blocks that the agent can take; `kinds` are those that it offers, None =
        those of its registration.

        A kind that no agent ever offered is disabled everywhere: the first agent that asks gets
        its requests, and they fail with the agent's reason.
        """
        if kinds is None:
            view = self._views.get(agent)
            kinds = view.registration.kinds if view else (HTTP.name,)
        # Every lease calls this: it must not iterate over a thousand agents.
        nobodys = [kind for kind in self._kinds if kind not in self._offered]
        able = dict.fromkeys((*kinds, *nobodys))
        return [*own_target(agent), *map(kind_target, able)]

    async def enable(self, agent: str, enabled: bool, aside: str = "") -> AgentView:
        view = await self._store.agents.enable(agent, enabled, aside, self._clock.now())
        self._views[agent] = view
        return view
