"""The machine of the figures. No names of hosts or people."""

from __future__ import annotations

import os
import platform
import sqlite3
from pathlib import Path

import psutil


def describe() -> str:
    """Cores, processor, memory, Python, in one line."""
    return (
        f"{os.cpu_count()} cores, {processor()}, {memory_gib():.0f} GiB, "
        f"{platform.system()} {platform.machine()}, Python {platform.python_version()}, "
        f"SQLite {sqlite3.sqlite_version}"
    )


def processor() -> str:
    """The model as the kernel names it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor() or "unknown processor"


def memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def load() -> float:
    """Runnable processes over the last minute, as a measure of other load."""
    return os.getloadavg()[0]


def stolen() -> tuple[float, float]:
    """(seconds that the host gave to others although we had work, all seconds), of all cores."""
    times = psutil.cpu_times()
    return float(getattr(times, "steal", 0.0)), float(sum(times))
