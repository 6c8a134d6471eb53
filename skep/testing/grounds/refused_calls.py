"""A center with one request, and a check that a refused call has changed nothing.

For tests of bad input over real HTTP.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from skep.testing.grounds.centers import Answer, RunningCenter, running_center
from skep.wire.problem import Problem

#: Maximum bytes of one call.
LIMIT = 100_000
URL = "http://example.com/"
#: Minimum number of words of a sentence.
SENTENCE = 4


@asynccontextmanager
async def center_with_one_request(folder: Path) -> AsyncIterator[RunningCenter]:
    """With a run `r`."""
    async with running_center(folder, center_body_limit=LIMIT) as running:
        await running.open_run("r")
        await running.put("r", [f"{URL}first"])
        yield running


async def refused(center: RunningCenter, answer: Answer, status: int, code: str) -> Problem:
    """Assert that the answer is a valid refusal and that nothing has changed."""
    problem = answer.problem()
    assert (answer.status, problem.code) == (status, code), problem.detail
    assert problem.type == f"urn:skep:problem:{code}"
    assert len(problem.detail.split()) >= SENTENCE, "a sentence, not a word"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert (await center.ledger()).accepted == 1
    assert [run["id"] for run in (await center.admin.get("/api/v1/runs")).json()["items"]] == ["r"]
    return problem
