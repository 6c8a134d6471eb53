"""`skep.runtime.retry`: how often, after which pauses, for which errors."""

from __future__ import annotations

from random import Random

import pytest

from skep.runtime.backoff import Backoff
from skep.runtime.retry import Attempts, Pauses, retry

BACKOFF = Backoff(first=1.0, cap=5.0, floor=1.0)


class Server:
    """Fails a number of times, with one error after the other."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0
        self.pauses: list[float] = []

    async def call(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "answer"

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)


@pytest.fixture
def three() -> Attempts:
    return Attempts(BACKOFF, Random(1), 3)


async def test_the_answer_after_growing_pauses(three: Attempts) -> None:
    server = Server(OSError("a"), OSError("b"))
    answer = await retry(server.call, OSError, lambda _, n: three.pause(n), server.sleep)
    assert (answer, server.calls, server.pauses) == ("answer", 3, [1.0, 2.0])


async def test_the_last_error_is_raised_without_a_pause_after_it(three: Attempts) -> None:
    server = Server(*(OSError(name) for name in "abcd"))
    with pytest.raises(OSError, match="c"):
        await retry(server.call, OSError, lambda _, n: three.pause(n), server.sleep)
    assert (server.calls, server.pauses) == (3, [1.0, 2.0])


async def test_errors_that_were_not_named_are_raised_at_once(three: Attempts) -> None:
    server = Server(ValueError("wrong"))
    with pytest.raises(ValueError, match="wrong"):
        await retry(server.call, OSError, lambda _, n: three.pause(n), server.sleep)
    assert (server.calls, server.pauses) == (1, [])


async def test_the_decision_sees_each_error_and_the_number_of_failures() -> None:
    seen: list[tuple[str, int]] = []

    def decide(error: OSError, failures: int) -> float | None:
        seen.append((str(error), failures))
        return None if str(error) == "final" else 0.5

    server = Server(OSError("a"), OSError("final"))
    with pytest.raises(OSError, match="final"):
        await retry(server.call, OSError, decide, server.sleep)
    assert (seen, server.pauses) == ([("a", 1), ("final", 2)], [0.5])


async def test_a_pause_may_end_the_retries(three: Attempts) -> None:
    async def stopped(_seconds: float) -> None:
        raise KeyError("stopped")

    server = Server(OSError("a"), OSError("b"))
    with pytest.raises(KeyError, match="stopped"):
        await retry(server.call, OSError, lambda _, n: three.pause(n), stopped)
    assert server.calls == 1


def test_no_limit_and_no_random_number_is_drawn_for_a_pause_that_is_not_made() -> None:
    rng = Random(7)
    before = rng.getstate()
    assert Attempts(BACKOFF, rng, 1).pause(1) is None
    assert rng.getstate() == before
    assert Attempts(BACKOFF, rng).pause(1000) == 5.0


def test_pauses_grow_with_failures_in_a_row_and_begin_again_after_a_success() -> None:
    pauses = Pauses(BACKOFF, Random(1))
    assert [pauses.failed() for _ in range(4)] == [1.0, 2.0, 4.0, 5.0]
    assert pauses.failures == 4
    pauses.succeeded()
    assert (pauses.failures, pauses.failed()) == (0, 1.0)
