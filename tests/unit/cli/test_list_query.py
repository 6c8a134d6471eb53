"""The filter of a list command against a center that does not know filters."""

from __future__ import annotations

from typing import Any

import pytest

from skep.cli.terminal.filters import ListQuery
from skep.errors import ConfigurationError
from skep.wire.api.runs import RunPage, Runs


async def test_a_center_that_ignores_the_filter_is_not_believed() -> None:
    """U8: an older center answers with everything; that is not what was asked for."""
    asked: list[RunPage] = []

    async def older(page: RunPage) -> Runs:
        asked.append(page)
        return Runs(items=[])

    nowhere: Any = None
    query = ListQuery("runs", ("state:failed",), None, "", 20)
    with pytest.raises(ConfigurationError, match="upgrade the center"):
        await query.find(nowhere, older, RunPage)
    assert asked[-1].filter == "state:failed"
    whole = ListQuery("runs", (), None, "", 20)
    assert (await whole.find(nowhere, older, RunPage)).items == []
    assert asked[-1] == RunPage(20)
