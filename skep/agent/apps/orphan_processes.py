"""Finds processes of applications by their environment. Runs on agents; blocking.

In a sandbox the kernel ends everything with its first process. This is for machines without a
sandbox, and for leftovers of a killed agent.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from skep.agent.apps.runner_contract import Start

ROUNDS = 50


def marks(start: Start) -> tuple[bytes, ...]:
    """Variables that every process of an instance has in its environment."""
    return (
        f"SKEP_AGENT={start.agent}".encode(),
        f"SKEP_RUN={start.run}".encode(),
        f"SKEP_INSTANCE={start.no}".encode(),
    )


def end_marked(marks: tuple[bytes, ...]) -> int:
    """Kill all processes with these marks, until none is left; returns how many."""
    ended: set[int] = set()
    for _ in range(ROUNDS):
        found = marked(marks)
        if not found:
            break
        ended.update(found)
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    return len(ended)


def marked(marks: tuple[bytes, ...]) -> list[int]:
    """Live processes with all of these marks, except this one."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if set(marks) <= set((entry / "environ").read_bytes().split(b"\0")):
                    found.append(int(entry.name))
    return found
