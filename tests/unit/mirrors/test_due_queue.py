"""The order in which the repositories of a host are polled."""

from __future__ import annotations

import math

from skep.mirrors.due_queue import SAVED, DueQueue


def test_polls_are_spaced_by_the_budget_and_ordered_by_due_time() -> None:
    """M3: a rate limit per host."""
    queue = DueQueue(budget=0.5, now=100.0)
    for key, due in enumerate([30.0, 10.0, 20.0]):
        queue.put(key, due, due)
    taken = []
    while (at := queue.next_at()) < math.inf:
        taken.append((at, queue.take(at)))
    assert taken == [(100.0, 1), (102.0, 2), (104.0, 0)]


def test_nothing_is_taken_before_its_time() -> None:
    queue = DueQueue(budget=1.0, now=0.0)
    queue.put(1, 50.0, 40.0)
    assert queue.next_at() == 40.0
    assert queue.take(39.9) is None
    assert queue.take(40.0) == 1
    assert len(queue) == 0


def test_spare_budget_goes_to_what_may_come_early_and_never_before_what_is_due() -> None:
    queue = DueQueue(budget=1.0, now=0.0)
    queue.put(1, 100.0, 99.0)
    queue.put(2, 500.0, 10.0)
    queue.put(3, 12.0, 12.0)
    taken = [queue.take(queue.next_at()) for _ in range(2)]
    assert taken == [2, 3]
    queue.put(2, 600.0, 50.0)
    assert queue.take(100.0) == 1, "it is due"
    assert queue.take(101.0) == 2


def test_a_new_due_time_replaces_the_old_one() -> None:
    queue = DueQueue(budget=1.0, now=0.0)
    queue.put(1, 10.0, 10.0)
    queue.put(1, 90.0, 90.0)
    queue.put(2, 30.0, 30.0)
    assert queue.take(30.0) == 2
    assert queue.next_at() == 90.0
    queue.remove(1)
    assert queue.next_at() == math.inf


def test_a_paused_host_is_not_polled() -> None:
    """M3: Retry-After of a host."""
    queue = DueQueue(budget=1.0, now=0.0)
    queue.put(1, 0.0, 0.0)
    queue.pause(500.0)
    assert queue.next_at() == 500.0


def test_a_process_that_slept_for_a_day_causes_no_burst() -> None:
    """M3: at most the saved minute of the budget comes at once."""
    queue = DueQueue(budget=1.0, now=0.0)
    for key in range(1000):
        queue.put(key, 0.0, 0.0)
    now, at_once = 86_400.0, 0
    while queue.take(now) is not None:
        at_once += 1
    assert at_once <= SAVED + 2
    assert queue.overdue(now) == 1000 - at_once
