"""Names in paths that fit nothing: an error for each, generated from the table of routes."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skep.center.app import api_table
from skep.center.http.authentication import Role
from skep.testing.grounds.centers import RunningCenter, running_center

NUMBERS = {"request": "999", "block": "999", "no": "9", "group": "0a1b2c3d4e5f@example.com"}
NUMBERS["operation"] = "999"
#: Answered in words: no requests to such a host wait.
ANSWERED = {"/api/v1/why/sites/{host}"}
READ = [
    row.path
    for row in api_table()
    if row.route.method == "GET" and "{" in row.path and row.role is not Role.AGENT
]


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    async with running_center(tmp_path) as running:
        yield running


async def test_no_path_answers_for_a_name_that_fits_nothing(center: RunningCenter) -> None:
    """U11: an empty list would say that the job, run or agent is there and has nothing."""
    assert len(READ) > 20
    wrong = {}
    for path in READ:
        named = re.sub(r"{(\w+)}", lambda found: NUMBERS.get(found[1], "nosuch"), path)
        answer = await center.admin.get(named)
        if answer.status != 404 and path not in ANSWERED:
            wrong[path] = (answer.status, answer.content[:200])
    assert wrong == {}
