"""Conformance tests for dead requests: groups, filters, bulk actions. Part of the store's suite."""

from __future__ import annotations

from skep.model.failures.dead_requests import FailureFilter, RequestFilter
from skep.model.ledger import Ledger
from skep.model.request import Outcome
from skep.model.states import RequestState, RunState
from skep.store.ports import Store
from skep.testing.conformance.store.ground import NOW, ledger, new_run, row, rows
from skep.testing.conformance.store.leasing import lease, leased_one, pack
from skep.testing.conformance.store.reports import ids, settle, settlement

ALL = FailureFilter()
LONG_AFTER = NOW + 1000


def broken(
    numbers: list[int], detail: str, failure: str = "network", status: int = 0
) -> list[Outcome]:
    # A used database has larger numbers than an address can have.
    details = {n: detail.format(n=n, part=n % 250) for n in numbers}
    return [Outcome(n, failure=failure, status=status, detail=details[n]) for n in numbers]


async def dead(store: Store, run: str = "run") -> list[int]:
    """Ten requests: six failed connections, three refusals, one success."""
    block = await leased_one(store, 10, run)
    numbers = ids(block)
    outcomes = broken(numbers[:6], "TLS handshake with 10.0.0.{part}:443 failed after {n} ms")
    outcomes += broken(numbers[6:9], "answered 403", "status", 403)
    outcomes.append(Outcome(numbers[9], status=200))
    assert await settle(store, settlement(block, outcomes)) == ["stored"]
    return numbers


class FailurePromises:
    async def test_failures_that_differ_in_numbers_are_one_group(self, store: Store) -> None:
        """D5, issue 4.6: '6 x TLS handshake, host X'."""
        await dead(store)
        first, second = await store.failures.groups(FailureFilter(run="run"), 10)
        assert (first.requests, first.failure, first.host) == (6, "network", "host")
        assert first.text == "TLS handshake with <address> failed after N ms"
        assert (second.requests, second.status) == (3, 403)
        assert first.first_at == first.last_at == NOW
        assert first.requests + second.requests == (await ledger(store)).dead

    async def test_lost_requests_have_a_group(self, store: Store) -> None:
        """Fault 34: requests that kill agents are found among the failures."""
        await leased_one(store, 1)
        await store.blocks.reap(NOW + 100, [], 1, 10)
        (group,) = await store.failures.groups(ALL, 10)
        assert (group.failure, group.requests, group.last_at) == ("lost", 1, NOW + 100)

    async def test_every_filter_narrows(self, store: Store) -> None:
        """D5: by run, job, host, class, status, text, time and group."""
        numbers = await dead(store)
        group = (await store.failures.groups(ALL, 1))[0].group
        counts = {
            FailureFilter(): 9,
            FailureFilter(run="run"): 9,
            FailureFilter(run="other"): 0,
            FailureFilter(job="job"): 9,
            FailureFilter(job="none"): 0,
            FailureFilter(host="host"): 9,
            FailureFilter(host="x"): 0,
            FailureFilter(failure="network"): 6,
            FailureFilter(status=403): 3,
            FailureFilter(failure="network", status=403): 0,
            FailureFilter(text=f"AFTER {numbers[0]} ms"): 1,
            FailureFilter(text="100%_"): 0,
            FailureFilter(since=NOW): 9,
            FailureFilter(since=NOW + 1): 0,
            FailureFilter(until=NOW): 0,
            FailureFilter(until=NOW + 1): 9,
            FailureFilter(group=group): 6,
            FailureFilter(group=group.partition("@")[0]): 6,
            FailureFilter(group=group.replace("@host", "@x")): 0,
        }
        found = {wanted: await store.failures.count(wanted) for wanted in counts}
        assert found == counts

    async def test_dead_requests_are_found_in_pages(self, store: Store) -> None:
        numbers = await dead(store)
        page = await store.failures.find(ALL, 0, 4)
        assert [item.id for item in page] == numbers[:4]
        assert (
            page[0].detail
            == f"TLS handshake with 10.0.0.{numbers[0] % 250}:443 failed after {numbers[0]} ms"
        )
        assert (page[0].run, page[0].agent, page[0].failures) == ("run", "agent", 1)
        rest = await store.failures.find(ALL, page[-1].id, 100)
        assert [item.id for item in rest] == numbers[4:9]

    async def test_retry_forgives_and_forgets_nothing(self, store: Store) -> None:
        """D5: waiting again, with their history; only requests that died before the action."""
        numbers = await dead(store)
        assert (await store.failures.act("retry", numbers, NOW)).done == 0
        acted = await store.failures.act("retry", [*numbers[:5], 10**9], LONG_AFTER)
        assert (acted.done, acted.left, acted.resting) == (5, 0, ())
        assert await ledger(store) == Ledger(accepted=10, waiting=5, dead=4, done=1)
        view = await store.requests.get(numbers[0])
        assert (view.state, view.failures, view.block) == (RequestState.WAITING, 0, None)
        assert len(await store.requests.attempts(numbers[0])) == 1
        assert await store.failures.count(ALL) == 4

    async def test_what_died_again_is_not_retried(self, store: Store) -> None:
        """Fault 35: a bulk action applies to requests that were dead when it started."""
        numbers = await dead(store)
        await store.failures.act("retry", numbers[:1], LONG_AFTER)
        (again,) = await lease(store, await pack(store))
        outcomes = broken(ids(again), "answered 403", "status", 403)
        await settle(store, settlement(again, outcomes), now=NOW + 50)
        assert (await store.failures.act("retry", numbers[:1], NOW + 50)).done == 0
        assert (await store.failures.act("retry", numbers[:1], NOW + 51)).done == 1

    async def test_retry_in_runs_that_rest_or_are_cancelled(self, store: Store) -> None:
        numbers = await dead(store)
        await store.runs.move("run", RunState.FINISHED, "", NOW)
        assert (await store.failures.act("retry", numbers[:2], LONG_AFTER)).resting == ("run",)
        await store.runs.move("run", RunState.RUNNING, "", NOW)
        await store.runs.move("run", RunState.CANCELLED, "", NOW)
        acted = await store.failures.act("retry", numbers, LONG_AFTER)
        assert (acted.done, acted.left) == (0, 7)

    async def test_dead_requests_are_cancelled(self, store: Store) -> None:
        numbers = await dead(store)
        assert (await store.failures.act("cancel", numbers, LONG_AFTER)).done == 9
        assert await ledger(store) == Ledger(accepted=10, cancelled=9, done=1)
        assert await store.failures.groups(ALL, 10) == []

    async def test_forgotten_requests_stay_in_the_ledger(self, store: Store) -> None:
        """D8: the counts of a run do not change; its rows are deleted."""
        numbers = await dead(store)
        acted = await store.failures.act("forget", numbers, LONG_AFTER)
        assert (acted.done, acted.left) == (0, 9)
        await store.runs.move("run", RunState.FINISHED, "", NOW)
        assert (await store.failures.act("forget", numbers, LONG_AFTER)).done == 9
        assert await ledger(store) == Ledger(accepted=10, dead=9, done=1, forgotten=9)
        assert await store.failures.count(ALL) == 0
        assert await store.requests.attempts(numbers[0]) == []

    async def test_two_centers_retry_the_same_once(self, store: Store, other_store: Store) -> None:
        numbers = await dead(store)
        first = await store.failures.act("retry", numbers, LONG_AFTER)
        second = await other_store.failures.act("retry", numbers, LONG_AFTER)
        assert (first.done, second.done) == (9, 0)


class FilteredRequestPromises:
    async def test_requests_by_filter(self, store: Store) -> None:
        await new_run(store)
        await store.requests.accept("run", rows(5), NOW)
        await store.requests.accept("run", [row("odd", uri="http://host/Odd%_one")], NOW + 10)
        counts = {
            RequestFilter(): 6,
            RequestFilter(run="run", state="waiting"): 6,
            RequestFilter(state="done"): 0,
            RequestFilter(text="odd%_"): 1,
            RequestFilter(since=NOW + 1): 1,
            RequestFilter(until=NOW + 1): 5,
            RequestFilter(job="job", host="host"): 6,
            RequestFilter(host="x"): 0,
        }
        assert {w: await store.failures.count_requests(w) for w in counts} == counts
        page = await store.failures.requests(RequestFilter(run="run"), 0, 4)
        rest = await store.failures.requests(RequestFilter(run="run"), page[-1].id, 9)
        assert [view.uri for view in (*page, *rest)][-1] == "http://host/Odd%_one"
        assert len(page) + len(rest) == 6

    async def test_some_requests_are_cancelled_wherever_they_wait(self, store: Store) -> None:
        """Waiting, delayed or in a READY block; not leased ones."""
        await new_run(store)
        await store.requests.accept("run", rows(8), NOW)
        ready, given = await pack(store, limit=6, size=3)
        (block,) = await lease(store, [given])
        views = await store.failures.requests(RequestFilter(run="run"), 0, 100)
        acted = await store.failures.cancel([view.id for view in views if view.id % 2], NOW)
        in_hand = sum(number % 2 for number in ids(block))
        assert (acted.done, acted.left) == (4 - in_hand, in_hand)
        everything = [view.id for view in views]
        assert (await store.failures.cancel(everything, NOW)).left == 3
        assert await ledger(store) == Ledger(accepted=8, leased=3, cancelled=5)
        assert await lease(store, [ready]) == []
        assert await store.failures.cancel([], NOW)

    async def test_a_block_is_leased_without_its_cancelled_requests(self, store: Store) -> None:
        await new_run(store)
        await store.requests.accept("run", rows(3), NOW)
        (ref,) = await pack(store)
        views = await store.failures.requests(RequestFilter(run="run"), 0, 100)
        await store.failures.cancel([views[0].id], NOW)
        (block,) = await lease(store, [ref])
        assert block.skip == [views[0].id]
        outcomes = [Outcome(view.id, status=200) for view in views[1:]]
        assert await settle(store, settlement(block, outcomes)) == ["stored"]
        assert await ledger(store) == Ledger(accepted=3, done=2, cancelled=1)
