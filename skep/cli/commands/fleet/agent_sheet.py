"""One agent as text: its state, its history, its commands, and why it is idle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skep.cli.terminal.output import age, table
from skep.cli.terminal.short_ids import Id
from skep.model.fleet.agent import machine_of

if TYPE_CHECKING:
    from skep.model.fleet.agent import Order, Vitals
    from skep.wire.api.agents import AgentDetail, AgentLine
    from skep.wire.api.placement import AllocationLine
    from skep.wire.client.answers_as_sent import Extended

_BARS = "▁▂▃▄▅▆▇█"
_ASIDE = {
    "cordoned": "it is cordoned: it keeps its runs and gets no new ones",
    "draining": "it is draining: it returns its work",
    "": "it is disabled",
}


@dataclass(frozen=True, slots=True)
class AgentFacts:
    """An agent, the runs that use it, and its heartbeats of the last hour."""

    detail: AgentDetail
    allocations: Sequence[AllocationLine] = ()
    #: (moment, vitals), oldest first.
    history: Sequence[tuple[float, Vitals]] = ()

    def plain(self) -> Extended:
        """As plain data, for JSON."""
        from skep.wire.client.answers_as_sent import Extended

        more = {"allocations": self.allocations, "history": self.history}
        return Extended(self.detail, more)


def agent_sheet(facts: AgentFacts, now: float) -> str:
    """Everything that the center knows about the agent."""
    parts = ["\n".join(f"{name:<8}  {value}" for name, value in _rows(facts))]
    if facts.detail.orders:
        parts.append(_orders(facts.detail.orders, now))
    if facts.allocations:
        parts.append(_allocations(facts.allocations, now))
    return "\n\n".join(parts)


def _rows(facts: AgentFacts) -> list[tuple[str, str]]:
    line, view = facts.detail, facts.detail.agent
    who, vitals = view.registration, view.vitals
    return [
        ("agent", who.id),
        ("name", who.name),
        ("state", f"{state_of(line)}, last heartbeat {age(line.last_beat_age)} ago"),
        ("works", why_idle(line) or "yes"),
        ("trouble", _trouble(vitals)),
        ("group", who.group),
        ("labels", pairs(who.labels)),
        ("kinds", " ".join(who.kinds)),
        ("address", who.address or "-"),
        ("machine", f"{who.os}, {who.cpus} processors, {_mib(who.memory)} memory"),
        ("load", f"{vitals.load:.2f}, cpu {vitals.cpu:.0%}"),
        ("free", f"{_mib(vitals.free_memory)} memory, {_mib(vitals.free_disk)} disk"),
        ("work", _work(line)),
        ("outbox", _outbox(vitals)),
        ("version", who.version or "-"),
        ("session", f"{view.session}, its {'own' if view.bound else 'shared'} token"),
        *_history(facts.history),
    ]


def _work(line: AgentDetail) -> str:
    """The active downloads; the last heartbeat of a dead agent is ignored."""
    if not line.alive:
        return "none: it is dead"
    return f"{line.agent.vitals.active} downloads, {line.agent.vitals.rate:.0f}/s"


def state_of(line: AgentLine | AgentDetail) -> str:
    """alive or dead, by the clock of the center; the other states are set by a user."""
    if line.agent.aside == "revoked":
        return "revoked"
    if not line.alive:
        return "dead"
    return "alive" if line.agent.enabled else line.agent.aside or "disabled"


def why_idle(line: AgentDetail) -> str:
    """Why the agent is idle; "" if it works."""
    view = line.agent
    if view.aside == "revoked":
        machine = machine_of(view.id)
        return (
            "no: its credential was revoked; `skep agent token --agent"
            f" {machine}` creates a token to join again, and `skep agents enable {view.id}` gives"
            " it work"
        )
    if not line.alive:
        return "no: it sends no heartbeats; check its process, its machine and its network"
    if not view.enabled:
        again = f"`skep agents enable {view.id}` gives it work again"
        return f"no: {_ASIDE.get(view.aside, _ASIDE[''])}; {again}"
    if view.vitals.active:
        return ""
    if view.vitals.outbox:
        return "no: results on its disk wait until a center accepts them"
    return "no: there is no work for it; `skep why RUN` explains what a run waits for"


def _outbox(vitals: Vitals) -> str:
    words = [f"{vitals.outbox} results"]
    words += [f"the oldest for {age(vitals.outbox_age)}"] if vitals.outbox_age else []
    words += [f"{vitals.dropped} dropped"]
    words += [f"{vitals.set_aside} of another identity kept apart"] if vitals.set_aside else []
    return ", ".join(words)


def _trouble(vitals: Vitals) -> str:
    if not vitals.trouble:
        return "none since its start"
    return f"{vitals.trouble}, {age(vitals.trouble_age)} before its last heartbeat"


def _history(beats: Sequence[tuple[float, Vitals]]) -> list[tuple[str, str]]:
    """The last hour, oldest first."""
    if len(beats) < 2:  # noqa: PLR2004 - one point does not make a line
        return []
    vitals = [one for _, one in beats]
    return [
        ("rate", f"{sparkline([one.rate for one in vitals])}  requests/s in the last hour"),
        ("cpu", f"{sparkline([one.cpu for one in vitals], 1.0)}  of all processors"),
    ]


def sparkline(values: Sequence[float], most: float = 0.0) -> str:
    """A small chart; its top is `most`, or the largest value."""
    top = max([most, *values]) or 1.0
    return "".join(_BARS[min(int(value / top * len(_BARS)), len(_BARS) - 1)] for value in values)


def pairs(labels: Mapping[str, str]) -> str:
    """`name=value name=value`."""
    return " ".join(f"{name}={value}" for name, value in sorted(labels.items())) or "no labels"


def _allocations(found: Sequence[AllocationLine], now: float) -> str:
    rows = [
        (Id(one.run), one.state, one.placement, f"{age(now - one.since)} ago", _end(one, now))
        for one in found
    ]
    return table(("RUN", "STATE", "PLACEMENT", "SINCE", "UNTIL"), rows)


def _end(one: AllocationLine, now: float) -> str:
    return "-" if one.until is None else f"{age(now - one.until)} ago"


def _orders(orders: Sequence[Order], now: float) -> str:
    rows = [
        (order.no, order.name, f"{age(now - order.made_at)} ago", _outcome(order, now))
        for order in orders
    ]
    return table(("ORDER", "TO", "GIVEN", "STATE"), rows)


def _outcome(order: Order, now: float) -> str:
    if order.ended_at is None:
        return "open: repeated until acknowledged"
    return f"{order.outcome}, {age(now - order.ended_at)} ago"


def _mib(size: int) -> str:
    return f"{size // 2**20} MiB"
