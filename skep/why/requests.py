"""Why a request is not done yet, or how it ended. Pure."""

from __future__ import annotations

from skep.model.lane import lane_of
from skep.model.states import FINAL_STATES, BlockState, RequestState
from skep.model.wait_reasons import Reason, Why
from skep.store.ports.waits import BlockWait, InHand, LastTry, RequestWait
from skep.why.blocks import View, block_reasons, lane_full, run_rests
from skep.why.chains import chain_of_request
from skep.why.fleet import needs_of, obstacles
from skep.why.hosts import Asker, host_reasons
from skep.why.wording import counted, duration, moment, up_to

#: The dispatcher runs at least this often.
_SOON = "none; it is packed into a block within a second"


def why_request(wait: RequestWait, view: View, ahead: InHand | None = None) -> Why:
    """Explains a request; `ahead` is what its agent took before it."""
    state = _state(wait)
    number, run = str(wait.id), wait.run.id
    if wait.state in FINAL_STATES:
        ended = _ended(wait, view.now)
        return Why("request", number, state, False, [ended], run, wait.uri)
    reasons = [*_open(wait, view, ahead), *_expires(wait, view.now)]
    waiting = reasons[0].code != "leased"
    return Why("request", number, state, waiting, reasons, run, wait.uri)


def _state(wait: RequestWait) -> str:
    """The state as the ledger counts it: a request in a leased block is leased."""
    taken = wait.block is not None and wait.block.state is BlockState.USING
    return "leased" if taken else wait.state.name.lower()


def _open(wait: RequestWait, view: View, ahead: InHand | None) -> list[Reason]:
    if wait.block is not None:
        known = [wait.host] if wait.host.known else []
        return block_reasons(BlockWait(wait.block, wait.run, known, ahead), view)
    rests = run_rests(wait.run, view.now)
    missing = obstacles(view.fleet, needs_of(wait.run.settings, chosen=view.chosen))
    held = _chained(wait, view)
    if held and not wait.failures:
        return [*rests, *held, *missing]
    special = _delayed(wait, view) if wait.state is RequestState.DELAYED else _waiting(wait, view)
    return [*rests, *held, *missing, *special]


def _chained(wait: RequestWait, view: View) -> list[Reason]:
    asked = wait.run.settings.placement
    if wait.chain is None or not asked.traits.chains:
        return []
    return chain_of_request(wait.chain, wait.run.id, asked, view.fleet)


def _waiting(wait: RequestWait, view: View) -> list[Reason]:
    lanes = view.fleet.lanes
    lane = lane_of(wait.priority)
    if lanes is not None and lanes[lane][0] >= lanes[lane][1]:
        return [lane_full(lane, *lanes[lane]), *_before(wait)]
    hosts = host_reasons(wait.host, _asker(wait, view, before=0))
    return [*hosts, _to_be_packed(wait)]


def _before(wait: RequestWait) -> list[Reason]:
    if not wait.before:
        return []
    return [_to_be_packed(wait)]


def _to_be_packed(wait: RequestWait) -> Reason:
    text = f"it waits to be packed into a block, after {up_to(wait.before, 'request')} of its run"
    facts = {"run": wait.run.id, "priority": wait.priority, "before": wait.before}
    return Reason("to_be_packed", text, _SOON, facts=facts)


def _asker(wait: RequestWait, view: View, before: int) -> Asker:
    return Asker(view.now, view.politeness, wait.run.settings, before)


def _delayed(wait: RequestWait, view: View) -> list[Reason]:
    hosts = host_reasons(wait.host, _asker(wait, view, wait.before))
    cools = bool(hosts) and hosts[0].code == "host_cooling"
    if not wait.failures:
        return hosts or [_parked(wait, view.now)]
    again = _retry(wait, view.now)
    # A host that is paused for longer decides; otherwise the time of the retry does.
    later = cools and (hosts[0].until or 0.0) >= wait.not_before
    return [*hosts, again] if later else [again, *hosts]


def _parked(wait: RequestWait, now: float) -> Reason:
    return Reason(
        "parked",
        f"it waits for host {wait.host.site.host} until {moment(wait.not_before, now)} at most",
        "none; it continues when its host is free",
        wait.not_before,
        facts={"host": wait.host.site.host, "before": wait.before},
    )


def _retry(wait: RequestWait, now: float) -> Reason:
    retries = wait.run.settings.retries
    last = wait.last
    after = f" after {outcome_of(last)}" if last is not None else ""
    due = wait.not_before <= now
    when = "now" if due else f"at {moment(wait.not_before, now)}"
    later = "" if due else f" in {duration(wait.not_before - now)}"
    return Reason(
        "retry",
        f"retry {wait.failures} of {retries} {when}{after}",
        f"none; it retries automatically{later}",
        wait.not_before,
        facts={"retry": wait.failures, "retries": retries, **last_try(last)},
    )


def outcome_of(last: LastTry) -> str:
    """`timeout`, or `status 503`, with the agent's detail."""
    kind = last.failure or "an answer"
    status = f" {last.status}" if last.status else ""
    detail = f" ({last.detail})" if last.detail else ""
    return f"{kind}{status}{detail}"


def last_try(last: LastTry | None) -> dict[str, object]:
    if last is None:
        return {}
    return {
        "failure": last.failure,
        "status": last.status,
        "detail": last.detail,
        "agent": last.agent,
        "at": last.at,
    }


def _expires(wait: RequestWait, now: float) -> list[Reason]:
    if wait.expires_at is None:
        return []
    text = f"it expires at {moment(wait.expires_at, now)}"
    return [Reason("expires", text, "none", wait.expires_at)]


def _ended(wait: RequestWait, now: float) -> Reason:
    code = wait.state.name.lower()
    last, facts = wait.last, last_try(wait.last)
    if wait.state is RequestState.DONE and last is not None:
        ago, status = duration(now - last.at), f" with {last.status}" if last.status else ""
        return Reason(code, f"agent {last.agent} completed it {ago} ago{status}", facts=facts)
    if wait.state is RequestState.DEAD:
        return _dead(wait, facts)
    words = {"done": "it is done", "cancelled": "it was cancelled", "expired": "it expired"}
    text = words[code]
    if wait.state is RequestState.EXPIRED and wait.expires_at is not None:
        text = f"it expired at {moment(wait.expires_at, now)}, before an agent took it"
    if wait.state is RequestState.CANCELLED:
        rests = f": {wait.run.reason}" if wait.run.reason else ""
        text = f"it was cancelled; its run is {wait.run.state}{rests}"
    return Reason(code, text, facts=facts)


def _dead(wait: RequestWait, facts: dict[str, object]) -> Reason:
    tries = f" after {counted(wait.failures, 'failed attempt')}" if wait.failures else ""
    last = f": {outcome_of(wait.last)}" if wait.last is not None else ""
    return Reason(
        "dead",
        f"it is dead{tries}{last}",
        "retry the dead requests of its run",
        do=(f"skep runs revive {wait.run.id}",),
        facts={"failures": wait.failures, "retries": wait.run.settings.retries, **facts},
    )
