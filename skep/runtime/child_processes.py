"""No child outlives its parent: the kernel is asked to end it, however the parent ends.

For children that centers, agents and commands start. Between fork and exec it may import nothing.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38


def death_signal(parent: int, *, no_new_privileges: bool = False) -> Callable[[], None] | None:
    """To be called in a child before it becomes its program. None where there is no prctl."""
    try:
        prctl = ctypes.CDLL(None, use_errno=True).prctl
    except (OSError, AttributeError):
        return None

    def ask_for_it() -> None:
        # Loaded before the fork: between fork and exec nothing may be imported.
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if no_new_privileges:
            prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if os.getppid() != parent:  # it died before we could ask
            os._exit(1)

    return ask_for_it
