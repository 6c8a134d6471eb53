"""Turns into an application: sets limits, changes the user, and executes it.

Started by an agent, usually inside bubblewrap, before any code of the application. It is
self-contained: nothing of Skep is available when it runs. Its arguments are two open files: the
order in JSON, and where to write why it failed.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import resource
import signal
import sys
from typing import Any

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
#: Agent and center take precedence.
NICE = 5


def limit(order: dict[str, Any]) -> None:
    """Set limits; 0 leaves a limit as it is, and no limit is raised."""
    for kind, value in (
        (resource.RLIMIT_AS, order["memory"]),
        (resource.RLIMIT_NOFILE, order["files"]),
        (resource.RLIMIT_NPROC, order["processes"]),
    ):
        if value:
            highest = resource.getrlimit(kind)[1]
            allowed = value if highest == resource.RLIM_INFINITY else min(value, highest)
            resource.setrlimit(kind, (allowed, allowed))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if order["cpus"]:
        cores = sorted(os.sched_getaffinity(0))
        count = min(max(math.ceil(order["cpus"]), 1), len(cores))
        first = int.from_bytes(os.urandom(2), "big")
        os.sched_setaffinity(0, {cores[(first + step) % len(cores)] for step in range(count)})


def become(uid: int) -> None:
    """Change to another user, irrevocably."""
    prctl = ctypes.CDLL(None).prctl
    if uid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    # Where there is no sandbox; the change of user has cleared it.
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def main() -> None:
    """Never returns."""
    ask, tell = int(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(tell, False)
    with os.fdopen(ask, "rb") as file:
        order = json.load(file)
    try:
        os.nice(NICE)
        become(order["uid"])
        limit(order)
        os.umask(0o077)
        os.chdir(order["folder"])
        os.execve(order["program"], order["command"], order["environment"])  # noqa: S606 - its purpose
    except (OSError, ValueError) as error:
        os.write(tell, f"cannot start {order['program']}: {error}".encode()[:2000])
        os._exit(127)


if __name__ == "__main__":
    main()
