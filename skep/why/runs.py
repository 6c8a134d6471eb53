"""Explains why a run waits: its agents, its lanes, its hosts, its driver. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from skep.model.lane import lane_of
from skep.model.states import ENDED_RUN_STATES, RunState
from skep.model.wait_reasons import Reason, Why
from skep.store.ports.waits import DriverFacts, InHand, RunWait
from skep.why.blocks import View, lane_full, run_rests
from skep.why.chains import chains_of_run
from skep.why.fleet import needs_of, obstacles, too_few_agents
from skep.why.generators import generator_reasons
from skep.why.hosts import Asker, host_reasons
from skep.why.requests import last_try, outcome_of
from skep.why.supervision import SupervisionFacts, supervision_reasons
from skep.why.wording import being, counted, duration, moment

#: Maximum hosts of delayed requests that are listed.
HOSTS_SHOWN = 3
#: Seconds of silence after which a driver without a timeout is probably gone.
LONG_SILENCE = 60.0


def why_run(wait: RunWait, view: View, care: SupervisionFacts | None = None) -> Why:
    """Explains a run; `care` is given for the run of a job."""
    run = wait.run
    if run.state in ENDED_RUN_STATES:
        reasons = [_ended(wait, view.now), *_dead(wait), *_left_open(wait)]
        return Why("run", run.id, str(run.state), False, reasons, run.id, f"job {run.job}")
    rests = run_rests(run, view.now)
    if rests:
        rests += [one for one in _generators(care) if one.code == "generator_failed"]
        rests += _dead(wait)
        return Why("run", run.id, str(run.state), True, rests, run.id, f"job {run.job}")
    hands = [_in_hand(one, view) for one in wait.in_hands]
    going = [reason for reason in hands if reason.code == "leased"]
    silent = [one for one in hands if one not in going]
    stuck = [*_stuck(wait, view, care), *silent]
    rest = [*stuck, *_dead(wait)] if wait.ledger.open else [*_dead(wait), *stuck]
    reasons = [*going, *rest]
    waiting = not going and not _driver_works(wait, view.now)
    return Why("run", run.id, str(run.state), waiting, reasons, run.id, f"job {run.job}")


def _generators(care: SupervisionFacts | None) -> Iterable[Reason]:
    return generator_reasons(care.generations, care.job_run.job) if care is not None else ()


def _ended(wait: RunWait, now: float) -> Reason:
    run, ledger = wait.run, wait.ledger
    because = f": {run.reason}" if run.reason else ""
    since = run.changed_at or run.created_at
    counts = f"{ledger.done:,} done, {ledger.dead:,} dead, {ledger.cancelled:,} cancelled"
    if ledger.open:
        counts += f", {ledger.open:,} open"
    do = []
    if run.state is RunState.FINISHED:
        do = [f"skep runs revive {run.id}"] if ledger.dead else []
        do.append(f"skep runs continue {run.id}")
    return Reason(
        f"run_{run.state}",
        f"run {run.id} ended at {moment(since, now)}, {run.state}{because} ({counts})",
        do=tuple(do),
        facts={"run": run.id, "since": since, "reason": run.reason},
    )


def _dead(wait: RunWait) -> list[Reason]:
    """Dead requests, with the most frequent failure."""
    count, example = wait.ledger.dead, wait.dead
    if not count:
        return []
    run = wait.run.id
    cause = f": {outcome_of(example.last)} at {example.uri}" if example is not None else ""
    most = "" if count == 1 or example is None else ", most of them with the same failure"
    facts: dict[str, object] = {"dead": count}
    if example is not None:
        facts |= {"uri": example.uri, **last_try(example.last)}
    return [
        Reason(
            "dead_requests",
            f"{being(count, 'request')} dead{most}{cause}",
            "fix the cause, then retry them",
            do=(f"skep failures ls --run {run}", f"skep runs revive {run}"),
            facts=facts,
        )
    ]


def _left_open(wait: RunWait) -> list[Reason]:
    """Requests that a finished run left open, because of a limit or a user."""
    count = wait.ledger.open
    if not count:
        return []
    run = wait.run.id
    return [
        Reason(
            "left_open",
            f"{counted(count, 'request')} did not end before the run did",
            "continue the run to process them",
            do=(f"skep runs continue {run}",),
            facts={"open": count},
        )
    ]


def _stuck(wait: RunWait, view: View, care: SupervisionFacts | None) -> Iterable[Reason]:
    """All reasons except requests that live agents hold."""
    ledger = wait.ledger
    if care is not None and not care.job_run.fed:
        yield from too_few_agents(view.fleet, wait.run.settings, view.chosen)
    if care is not None:
        yield from supervision_reasons(care, view.now)
    if not ledger.open:
        yield from _nothing_open(wait, view.now, care)
        return
    placement = wait.run.settings.placement
    held = chains_of_run(view.belonging, wait.run.id, placement, view.fleet)
    missing = obstacles(view.fleet, needs_of(wait.run.settings, chosen=view.chosen))
    yield from (*held, *missing)
    yield from _waiting(wait, view, packed=placement.plain or not (held or missing))
    yield from _delayed(wait, view)
    if ledger.queued:
        yield _queued(ledger.queued)
    yield from _reader(wait, view.now)


def _in_hand(hand: InHand, view: View) -> Reason:
    agent = view.fleet.find(hand.agent)
    seen = agent.seen_at if agent else 0.0
    heard = f"last heartbeat {duration(view.now - seen)} ago" if agent else "not registered"
    alive = agent is not None and agent.alive(view.now, view.fleet.alive_after)
    text = (
        f"{being(hand.requests, 'request')} leased to agent {hand.agent}"
        f" ({counted(hand.blocks, 'block')}), {heard}"
    )
    frees = "wait for its answers" if alive else "none; they go to another agent within seconds"
    facts = {
        "agent": hand.agent,
        "blocks": hand.blocks,
        "requests": hand.requests,
        "last_seen_at": seen,
    }
    return Reason("leased" if alive else "agent_silent", text, frees, facts=facts)


def _waiting(wait: RunWait, view: View, *, packed: bool) -> Iterable[Reason]:
    """`packed`: the dispatcher has an agent to pack them for, or does not need one."""
    lanes = view.fleet.lanes
    if not wait.ledger.waiting or lanes is None:
        return
    full = False
    for lane in sorted({lane_of(priority) for priority in wait.priorities}):
        filled, limit = lanes[lane]
        if filled >= limit:
            full = True
            yield lane_full(lane, filled, limit)
    if not full:
        yield Reason(
            "to_be_packed",
            f"{being(wait.ledger.waiting, 'request')} waiting to be packed into blocks",
            "none; the dispatcher packs them within a second, runs take turns"
            if packed
            else "none; the dispatcher packs them when an agent is available",
            facts={"requests": wait.ledger.waiting},
        )


def _queued(count: int) -> Reason:
    return Reason(
        "in_lane",
        f"{being(count, 'request')} in blocks that wait for an agent",
        "none; agents take them when they have capacity",
        facts={"requests": count},
    )


def _delayed(wait: RunWait, view: View) -> Iterable[Reason]:
    """Retries, and the hosts for which most of the sampled requests wait."""
    if not wait.ledger.delayed:
        return
    parked = Counter(one.host for one in wait.delayed if not one.failures)
    parked.update(
        one.host
        for one in wait.delayed
        if one.failures and wait.hosts[one.host].site.cooling_until > view.now
    )
    told = False
    for host, _ in parked.most_common(HOSTS_SHOWN):
        asker = Asker(view.now, view.politeness, wait.run.settings)
        for reason in host_reasons(wait.hosts[host], asker)[:1]:
            told = True
            yield reason
    retries = [one.not_before for one in wait.delayed if one.failures]
    if retries:
        told = True
        yield _retries(wait, min(retries), len(retries), view.now)
    if not told:
        yield Reason(
            "parked",
            f"{being(wait.ledger.delayed, 'request')} delayed",
            "none; they continue when their host is free, or at their own time",
            facts={"requests": wait.ledger.delayed},
        )


def _retries(wait: RunWait, first: float, seen: int, now: float) -> Reason:
    delayed, example = wait.ledger.delayed, wait.retried
    when = "now" if first <= now else f"at {moment(first, now)}"
    cause = f" after {outcome_of(example.last)} at {example.uri}" if example is not None else ""
    some = f"{counted(seen, 'request')}" if seen >= delayed else f"some of {delayed:,} requests"
    return Reason(
        "retry",
        f"{some} failed and will be retried, the first {when}{cause}",
        "none; they retry automatically",
        first,
        facts={
            "looked_at": seen,
            "delayed": delayed,
            **last_try(example.last if example is not None else None),
        },
    )


# -- the driver


def _driver_works(wait: RunWait, now: float) -> bool:
    """Whether the driver is running and has pages to read."""
    driver = wait.driver
    return driver is not None and bool(wait.unread) and not _gone(driver, now)


def _gone(driver: DriverFacts, now: float) -> str:
    """Why the driver is gone; "" when it is not."""
    silent = now - driver.heard_at
    if driver.patience is None:
        return "its driver has ended, and no other has taken over"
    if silent > (driver.patience or LONG_SILENCE):
        return f"its driver made its last call {duration(silent)} ago"
    return ""


def _reader(wait: RunWait, now: float) -> Iterable[Reason]:
    driver = wait.driver
    if driver is None:
        return
    gone = _gone(driver, now)
    if gone:
        yield _driver_gone(wait, driver, gone)
    elif wait.unread:
        yield _unread(wait, "wait for its driver to read them")
    elif wait.ledger.open:
        yield Reason(
            "waits_for_answers",
            f"its driver has read every page and waits for {counted(wait.ledger.open, 'answer')}",
            "wait for the answers of agents",
            facts={"open": wait.ledger.open, "heard_at": driver.heard_at},
        )


def _driver_gone(wait: RunWait, driver: DriverFacts, gone: str) -> Reason:
    unread = f" and has not read {counted(wait.unread, 'finished page')}" if wait.unread else ""
    run = wait.run.id
    return Reason(
        "driver_gone",
        f"{gone}{unread}: no new requests are found",
        "start its spider again",
        do=(f"skep run SPIDER --resume {run}",),
        facts={"unread": wait.unread, "heard_at": driver.heard_at, "patience": driver.patience},
    )


def _unread(wait: RunWait, frees: str) -> Reason:
    text = f"{being(wait.unread, 'finished page')} not read yet"
    return Reason("pages_unread", text, frees, facts={"unread": wait.unread})


def _nothing_open(wait: RunWait, now: float, care: SupervisionFacts | None) -> Iterable[Reason]:
    run = wait.run.id
    yield from _reader(wait, now)
    if any(_generators(care)):  # more will come of them
        return
    if wait.driver is not None:
        if not wait.unread and not _gone(wait.driver, now):
            text = "no request is open; its driver is about to add requests or to end the run"
            yield Reason("driver_decides", text, "wait for its driver")
        return
    if not wait.ledger.accepted:
        text = f"run {run} has no requests yet"
        submit = () if care is not None else (f"skep submit {run} FILE",)
        yield Reason("no_requests", text, "submit requests", do=submit)
        return
    if wait.unread:
        yield _unread(wait, "read and collect them")
    text = f"every request of run {run} has ended, and the run has not been ended"
    do = () if care is not None else (f"skep runs finish {run}", f"skep submit {run} FILE")
    yield Reason("nothing_left", text, "submit more requests, or end the run", do=do)
