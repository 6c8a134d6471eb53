"""The isolation of user code on this machine, for tests of other features.

User code runs in a sandbox if bubblewrap works, else only with the limits of the kernel (for
example in a container without namespaces). Tests of the isolation itself need a sandbox:
`pytest.mark.needs("bwrap")`.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

from skep.downloaders.code.isolation import detect


@cache
def why_no_box() -> str:
    """Why bubblewrap does not work here; "" if it does."""
    found = detect()
    return "" if found.boxed else found.why_not


def code_setting() -> Literal["boxed", "always"]:
    """The value of `agent.code` and `jobs.code` with which user code runs on this machine."""
    return "always" if why_no_box() else "boxed"
