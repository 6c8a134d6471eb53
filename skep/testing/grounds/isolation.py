"""The isolation of user code that this machine has, for tests of something else.

User code runs in a box where bubblewrap works, and with the limits of the kernel alone where
it does not (a container without namespaces). Tests of isolation itself need a box:
`pytest.mark.needs("bwrap")`.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

from skep.downloaders.code.isolation import detect


@cache
def why_no_box() -> str:
    """Why bubblewrap does not work here; "" where it does."""
    found = detect()
    return "" if found.boxed else found.why_not


def code_setting() -> Literal["boxed", "always"]:
    """`agent.code` and `jobs.code` under which user code runs on this machine."""
    return "always" if why_no_box() else "boxed"
