"""Figures of the machine, read from /proc for each heartbeat. Without /proc they are 0.

Run by agents; it reads a few small files each time. Only the newest figures count; a figure that
cannot be read must never prevent a heartbeat.
"""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

from skep import __version__
from skep.model.fleet.agent import Registration, Vitals
from skep.runtime.files import read_or_none
from skep.settings import AgentSettings

_PROC = Path("/proc")


class MachineFigures:
    """Stores the last CPU counters, since a load is a difference."""

    def __init__(self, proc: Path = _PROC, folder: Path | None = None) -> None:
        self._proc = proc
        self._folder = folder
        self._busy, self._total = _cpu_ticks(proc)

    def read(self, *, active: int, rate: float, outbox: int, dropped: int) -> Vitals:
        """The machine's figures, together with the agent's own."""
        return Vitals(
            cpu=self._cpu(),
            free_memory=_memory(self._proc, b"MemAvailable:"),
            processes=_processes(self._proc),
            active=active,
            rate=round(rate, 1),
            outbox=outbox,
            dropped=dropped,
            free_disk=_free(self._folder),
            load=_load(self._proc),
        )

    def _cpu(self) -> float:
        busy, total = _cpu_ticks(self._proc)
        passed = total - self._total
        load = (busy - self._busy) / passed if passed > 0 else 0.0
        self._busy, self._total = busy, total
        return round(min(max(load, 0.0), 1.0), 3)


def describe(agent: str, settings: AgentSettings, kinds: tuple[str, ...]) -> Registration:
    """The registration of this process."""
    host = platform.node()
    return Registration(
        id=agent,
        name=settings.name or host or agent,
        group=settings.group,
        os=platform.system().lower(),
        cpus=os.cpu_count() or 0,
        memory=_memory(_PROC, b"MemTotal:"),
        version=__version__,
        kinds=kinds,
    )


def _cpu_ticks(proc: Path) -> tuple[int, int]:
    """(busy, total) of all processors since the machine started."""
    lines = (read_or_none(proc / "stat") or b"").split(b"\n", 1)
    fields = [int(field) for field in lines[0].split()[1:9]]
    idle = sum(fields[3:5])
    return sum(fields) - idle, sum(fields)


def _memory(proc: Path, name: bytes) -> int:
    for line in (read_or_none(proc / "meminfo") or b"").splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    return 0


def _free(folder: Path | None) -> int:
    try:
        return shutil.disk_usage(folder).free if folder is not None else 0
    except OSError:
        return 0


def _load(proc: Path) -> float:
    """Load average of the last minute."""
    words = (read_or_none(proc / "loadavg") or b"").split()
    return float(words[0]) if words else 0.0


def _processes(proc: Path) -> int:
    try:
        return sum(name.isdigit() for name in os.listdir(proc))  # noqa: PTH208  (names are enough)
    except OSError:
        return 0
