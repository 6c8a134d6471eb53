"""Ends child processes with their parent: the kernel kills a child, however the parent ends.

For children that centers, agents and commands start. Between fork and exec it must not import.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38


def death_signal(parent: int, *, no_new_privileges: bool = False) -> Callable[[], None] | None:
    """A function for the child to call before exec. None where there is no prctl."""
    try:
        prctl = ctypes.CDLL(None, use_errno=True).prctl
    except (OSError, AttributeError):
        return None

    def request_signal() -> None:
        # Loaded before the fork: imports between fork and exec are not allowed.
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if no_new_privileges:
            prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if os.getppid() != parent:  # the parent died before the prctl call
            os._exit(1)

    return request_signal
