"""The exit code of a bulk operation follows the one rule: 0 all, 7 a part, 1 nothing."""

from __future__ import annotations

import pytest

from skep.cli.commands.operate.operation_view import exit_of
from skep.cli.terminal.exit_codes import ExitCode
from skep.model.operations import OperationResult, OperationState, result_of
from skep.wire.api.operations import OperationView

DONE = result_of("done", "", range(3))
SKIPPED = result_of("skipped", "has ended", range(2))
FAILED = result_of("failed", "the store is away", range(1))


def ended(state: OperationState, *results: OperationResult) -> OperationView:
    return OperationView(1, "requests", "retry", "", {}, "anna", state, 6, 6, [*results], 0, 0, 0)


@pytest.mark.parametrize(
    ("view", "code"),
    [
        (ended(OperationState.WORKING), ExitCode.OK),
        (ended(OperationState.DONE, *DONE, *SKIPPED), ExitCode.OK),
        (ended(OperationState.DONE, *SKIPPED), ExitCode.OK),
        (ended(OperationState.DONE, *DONE, *FAILED), ExitCode.PARTLY),
        (ended(OperationState.DONE, *FAILED), ExitCode.FAILED),
        (ended(OperationState.CANCELLED, *DONE), ExitCode.PARTLY),
        (ended(OperationState.CANCELLED), ExitCode.FAILED),
    ],
)
def test_the_exit_code_says_what_became_of_the_objects(view: OperationView, code: ExitCode) -> None:
    """U6."""
    assert exit_of(view) == code
