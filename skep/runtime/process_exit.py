"""The end of a process whose work is done: at once.

Python takes every module and object apart before it ends, which takes as long as importing a
large part of them. Nothing here is skipped that anybody has asked for: threads are waited
for, and everything that was registered with `atexit` since `prepare` has been called.
"""

from __future__ import annotations

import atexit
import os
import sys
from typing import TextIO


class Leaving:
    """Made at the start of a program; `code` is set when its work is done."""

    def __init__(self) -> None:
        self.code: int | None = None

    def prepare(self) -> None:
        """What is registered first is called last."""
        atexit.register(self._leave)

    def _leave(self) -> None:
        if self.code is None:  # an error that Python shows, and ends with
            return
        try:
            flush_output()
        except (OSError, ValueError):  # a closed pipe: Python has its own way with it
            return
        os._exit(self.code)


def flush_output() -> None:
    """Write what waits to be written; a program may be started without these files."""
    streams: list[TextIO | None] = [sys.stdout, sys.stderr]
    for stream in streams:
        if stream is not None:
            stream.flush()
