"""A model of the store as plain dictionaries, which the real one must equal at every step.

Pure, without clock or randomness. Block and request ids come from the real store.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from skep.model.ledger import Ledger
from skep.model.states import CLAIMABLE, BlockState, RequestState

SPLIT_AFTER = 3


@dataclass
class ModelRequest:
    number: int
    run: str
    uri: str
    expires_at: float | None
    state: RequestState = RequestState.WAITING
    not_before: float = 0.0
    block: int | None = None


@dataclass
class ModelBlock:
    id: int
    run: str
    members: list[ModelRequest]
    state: BlockState = BlockState.READY
    token: int = 0
    losses: int = 0
    agent: str = ""
    until: float = 0.0

    @property
    def open(self) -> list[ModelRequest]:
        return [r for r in self.members if r.block == self.id and r.state is RequestState.QUEUED]


@dataclass
class ModelStore:
    """All requests are of one priority; runs are RUNNING unless in `cancelled`."""

    requests: dict[tuple[str, str], ModelRequest] = field(default_factory=dict)
    blocks: dict[int, ModelBlock] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)

    def accept(self, run: str, uris: Iterable[str], expires_at: float | None) -> int:
        before = len(self.requests)
        for uri in uris:
            if (run, uri) not in self.requests:
                number = len(self.requests)
                self.requests[run, uri] = ModelRequest(number, run, uri, expires_at)
        return len(self.requests) - before

    def of_run(self, run: str, *states: RequestState) -> list[ModelRequest]:
        return [r for r in self.requests.values() if r.run == run and r.state in states]

    def to_pack(self, run: str, limit: int) -> list[ModelRequest]:
        return [] if run in self.cancelled else self.of_run(run, RequestState.WAITING)[:limit]

    def new_block(self, block: int, run: str, members: list[ModelRequest], losses: int = 0) -> None:
        for request in members:
            request.state, request.block = RequestState.QUEUED, block
        self.blocks[block] = ModelBlock(block, run, members, losses=losses)

    def lease(self, ids: Iterable[int], agent: str, now: float, until: float) -> list[ModelBlock]:
        given = []
        for number in ids:
            block = self.blocks[number]
            if self.still_wanted(block, now):
                block.state, block.agent, block.until = BlockState.USING, agent, until
                block.token += 1
                given.append(block)
        return given

    def still_wanted(self, block: ModelBlock, now: float) -> bool:
        """Whether it can be leased. Expired requests in it end here."""
        if block.state not in CLAIMABLE or block.run in self.cancelled:
            return False
        for request in block.open:
            if request.expires_at is not None and request.expires_at <= now:
                request.state = RequestState.EXPIRED
        if not block.open:
            block.state = BlockState.FAILED
        return bool(block.open)

    def holds(self, number: int, token: int, agent: str) -> bool:
        block = self.blocks[number]
        return block.state is BlockState.USING and (block.token, block.agent) == (token, agent)

    def verdict(self, number: int, token: int, agent: str) -> str:
        if self.holds(number, token, agent):
            return "stored"
        block = self.blocks[number]
        return "duplicate" if (block.token, block.agent) == (token, agent) else "stale"

    def end(self, request: ModelRequest, failure: str, again_at: float | None) -> None:
        """Apply one outcome to an open request."""
        if not failure:
            request.state = RequestState.DONE
        elif request.run in self.cancelled:
            request.state = RequestState.CANCELLED
        elif again_at is None:
            request.state = RequestState.DEAD
        else:
            request.state, request.not_before, request.block = (
                RequestState.DELAYED,
                again_at,
                None,
            )

    def advance(self, block: ModelBlock, *, final: bool) -> None:
        """Update the state after a report; the model does not separate SUCCESS and FAILED."""
        if final and block.run in self.cancelled:
            self.give_up(block, RequestState.CANCELLED)
        elif not block.open:
            block.state = BlockState.SUCCESS
        elif final:
            block.state = BlockState.RETRY

    def give_up(self, block: ModelBlock, state: RequestState) -> None:
        for request in block.open:
            request.state = state
        block.state = BlockState.FAILED

    def give_back(self, block: ModelBlock) -> None:
        block.agent = ""
        if block.run in self.cancelled:
            self.give_up(block, RequestState.CANCELLED)
        else:
            block.state = BlockState.RETRY

    def overdue(self, now: float, dead: Iterable[str]) -> list[ModelBlock]:
        gone = set(dead)
        using = (b for b in self.blocks.values() if b.state is BlockState.USING)
        late = [b for b in using if b.until < now or b.agent in gone]
        return sorted(late, key=lambda block: block.id)

    def lose(self, block: ModelBlock, lease_limit: int) -> list[ModelRequest]:
        """Take a lease back; returns the requests that must get separate blocks."""
        block.losses += 1
        block.agent = ""
        if block.run in self.cancelled:
            self.give_up(block, RequestState.CANCELLED)
        elif block.losses >= lease_limit:
            self.give_up(block, RequestState.DEAD)
        elif block.losses >= SPLIT_AFTER and len(block.open) > 1:
            block.state = BlockState.FAILED
            return block.open
        else:
            block.state = BlockState.RETRY
        return []

    def wake(self, now: float) -> int:
        return self._change(now, RequestState.WAITING)

    def expire(self, now: float) -> int:
        return self._change(now, RequestState.EXPIRED)

    def _change(self, now: float, to: RequestState) -> int:
        due = [r for r in self.requests.values() if _is_due(r, now, to)]
        for request in due:
            request.state = to
        return len(due)

    def cancel(self, run: str) -> int:
        self.cancelled.add(run)
        going = self.of_run(run, RequestState.WAITING, RequestState.DELAYED)
        claimable = [b for b in self.blocks.values() if b.run == run and b.state in CLAIMABLE]
        for block in claimable:
            going += block.open
            block.state = BlockState.FAILED
        for request in going:
            request.state = RequestState.CANCELLED
        return len(going)

    def revive(self, run: str) -> int:
        dead = self.of_run(run, RequestState.DEAD)
        for request in dead:
            request.state, request.block = RequestState.WAITING, None
        return len(dead)

    def ledger(self, run: str) -> Ledger:
        counts = dict.fromkeys((state.name.lower() for state in RequestState), 0)
        mine = [r for r in self.requests.values() if r.run == run]
        for request in mine:
            state = request.state
            if state is RequestState.QUEUED and request.block is not None:
                using = self.blocks[request.block].state is BlockState.USING
                state = RequestState.LEASED if using else state
            counts[state.name.lower()] += 1
        return Ledger(len(mine), **counts)


def _is_due(request: ModelRequest, now: float, to: RequestState) -> bool:
    if to is RequestState.WAITING:
        return request.state is RequestState.DELAYED and request.not_before <= now
    mortal = request.state in (RequestState.WAITING, RequestState.DELAYED)
    return mortal and request.expires_at is not None and request.expires_at <= now
