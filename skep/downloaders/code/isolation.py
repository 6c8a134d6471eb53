"""How user code is isolated on this machine, and the command line for it.

Checked once, when an agent starts; `skep doctor` shows the same. With bubblewrap the code sees
Python, the system's programs and a scratch folder in memory: no other process, no network, no
file of the agent. Agents that run as root also give it a separate user.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skep.settings import AgentSettings

INSIDE = Path(__file__).parent / "inside"
#: The path of `INSIDE` in the sandbox.
PACKAGE_ROOT = "/run/skep"
SCRATCH = "/tmp"  # noqa: S108 - private to the sandbox
PROBE_SECONDS = 10.0
NOBODY = "65534"

_FROM_ETC = (
    "alternatives", "ca-certificates", "hosts", "ld.so.cache", "localtime", "mime.types",
    "nsswitch.conf", "pki", "protocols", "services", "ssl",
)  # fmt: skip
_START = (
    "import sys; sys.path.insert(0, {root!r}); "
    "from skep.downloaders.code.inside.main import main; main()"
)
_APART = ("--unshare-ipc", "--unshare-pid", "--unshare-uts")
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}


@dataclass(frozen=True, slots=True)
class Isolation:
    """The isolation on this machine."""

    #: The program; "" = it is not installed or does not work.
    bwrap: str
    #: Why there is no sandbox; "" = there is one.
    why_not: str
    #: Whether code gets a separate user.
    own_user: bool

    @property
    def boxed(self) -> bool:
        return bool(self.bwrap)

    def describe(self) -> str:
        """One line for display."""
        user = "another user" if self.own_user else "the agent's user without rights"
        if self.boxed:
            return f"bubblewrap: {user}, own files, processes and network, kernel limits"
        user = "another user" if self.own_user else "the agent's own user"
        return f"kernel limits and {user}, nothing else ({self.why_not})"

    def command(
        self, fd: int, scratch: int, *, proxied: bool, info_fd: int, seccomp: int | None = None
    ) -> list[str]:
        """The whole command line of a child; `scratch` is the size of its folder, `seccomp` an
        open file with a filter."""
        last = [str(fd), "door" if proxied else "-"]
        if not self.boxed:
            return [
                sys.executable,
                "-I",
                "-c",
                _START.format(root=_package_root()),
                *last,
            ]
        box = [*box_arguments(scratch, root=self.own_user), "--info-fd", str(info_fd)]
        box += [] if seccomp is None else ["--seccomp", str(seccomp)]
        return [
            self.bwrap,
            *box,
            sys.executable,
            "-I",
            "-c",
            _START.format(root=PACKAGE_ROOT),
            *last,
        ]


def isolation_of(agent: AgentSettings) -> Isolation:
    """How user code is isolated, if any is allowed. Tests it."""
    if agent.code == "never":
        return Isolation("", "not checked", own_user=False)
    return detect()


def detect(program: str = "bwrap") -> Isolation:
    """Test it: an installed program may still be forbidden by the kernel."""
    root = os.geteuid() == 0
    if not sys.platform.startswith("linux"):
        return Isolation("", "bubblewrap needs Linux", own_user=root)
    found = shutil.which(program)
    if found is None:
        return Isolation("", "bubblewrap is not installed", own_user=root)
    trial = [found, *box_arguments(2**20, root=root), sys.executable, "-I", "-S", "-c", "pass"]
    try:
        said = subprocess.run(  # noqa: S603 - our own arguments
            trial, env=ENVIRONMENT, capture_output=True, timeout=PROBE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Isolation("", f"bubblewrap does not work here: {error}", own_user=root)
    if said.returncode:
        text = " ".join(said.stderr.decode(errors="replace").split())[:200]
        return Isolation("", f"bubblewrap does not work here: {text}", own_user=root)
    return Isolation(found, "", own_user=root)


def box_arguments(
    scratch: int, *, root: bool, network: bool = False, also: Iterable[tuple[str, str]] = ()
) -> list[str]:
    """Everything before the command. Only what is listed here exists inside; `also` are more
    pairs of a source and its read-only place."""
    user = ("--unshare-user", "--uid", NOBODY, "--gid", NOBODY)
    # Root needs these two to change its user; they are dropped with that.
    rights = ("--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")
    return [
        *_APART,
        *(() if network else ("--unshare-net",)),
        "--unshare-cgroup-try",
        "--die-with-parent",
        "--new-session",
        *(rights if root else user),
        # First: Python itself may be installed below it.
        "--perms", "1777", "--size", str(scratch), "--tmpfs", SCRATCH,
        *_file_system([*_shown(), *also]),
        "--proc", "/proc",
        "--dev", "/dev",
        # Last: folders that were created for the mounts above become read-only.
        "--remount-ro", "/dev",
        "--remount-ro", "/",
        "--chdir", SCRATCH,
    ]  # fmt: skip


def _file_system(shown: list[tuple[str, str]]) -> list[str]:
    arguments: list[str] = []
    for parent in _parents(place for _, place in shown):
        arguments += ["--perms", "0755", "--dir", parent]
    for source, place in shown:
        arguments += ["--ro-bind-try", source, place]
    for name in ("bin", "lib", "lib32", "lib64", "libx32", "sbin"):
        path = Path("/", name)
        if path.is_symlink():
            arguments += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            arguments += ["--ro-bind", str(path), str(path)]
    return arguments


def _shown() -> Iterator[tuple[str, str]]:
    """(source, place): the system, Python with its packages, and the program for children."""
    yield "/usr", "/usr"
    for name in _FROM_ETC:
        yield f"/etc/{name}", f"/etc/{name}"
    executable = Path(sys.executable).resolve().parent.parent
    for prefix in dict.fromkeys((sys.base_prefix, sys.prefix, str(executable))):
        if not PurePath(prefix).is_relative_to("/usr"):
            yield prefix, prefix
    yield str(INSIDE), f"{PACKAGE_ROOT}/skep/downloaders/code/inside"


def _parents(places: Iterator[str]) -> list[str]:
    """Parent folders of mounts; bubblewrap would create them for root only."""
    found: dict[str, None] = {}
    for place in places:
        for parent in reversed(PurePath(place).parents):
            found[str(parent)] = None
    return [place for place in found if place not in {"/", SCRATCH}]


def _package_root() -> str:
    return str(Path(__file__).parents[3])
