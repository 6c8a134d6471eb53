"""Ends a process at once when its work is done.

Python takes every module and object apart before it ends, which takes as long as importing a
large part of them. Nothing that was requested is skipped: it waits for threads and calls
everything that was registered with `atexit` since `prepare`.
"""

from __future__ import annotations

import atexit
import os
import sys
from typing import TextIO


class Leaving:
    """Created at the start of a program, which sets `code` when its work is done."""

    def __init__(self) -> None:
        self.code: int | None = None

    def prepare(self) -> None:
        """Registers the exit function. The function that is registered first is called last."""
        atexit.register(self._leave)

    def _leave(self) -> None:
        if self.code is None:  # an uncaught error: Python reports it and ends the process
            return
        try:
            flush_output()
        except (OSError, ValueError):  # a closed pipe: leave the regular exit to Python
            return
        os._exit(self.code)


def flush_output() -> None:
    """Flush stdout and stderr; a program can be started without them."""
    streams: list[TextIO | None] = [sys.stdout, sys.stderr]
    for stream in streams:
        if stream is not None:
            stream.flush()
