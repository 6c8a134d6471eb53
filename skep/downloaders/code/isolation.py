"""How user code is kept apart on this machine, and the command line that does it.

Looked at once, when an agent starts; `skep doctor` says the same. With bubblewrap the code
sees Python, the system's programs, a scratch folder in memory and nothing else: no other
process, no network, no file of the agent. Agents of root also give it a user of its own.
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
#: Where `INSIDE` is found in the box: on a path of its own, under its own name.
PACKAGE_ROOT = "/run/skep"
SCRATCH = "/tmp"  # noqa: S108 - the box's own, made for it and gone with it
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
    """What is in force here."""

    #: The program, "" where there is none or where it does not work.
    bwrap: str
    #: Why there is no box, "" where there is one.
    why_not: str
    #: Code gets a user of its own.
    own_user: bool

    @property
    def boxed(self) -> bool:
        return bool(self.bwrap)

    def describe(self) -> str:
        """One line for people."""
        user = "another user" if self.own_user else "the agent's user without rights"
        if self.boxed:
            return f"bubblewrap: {user}, own files, processes and network, kernel limits"
        user = "another user" if self.own_user else "the agent's own user"
        return f"kernel limits and {user}, nothing else ({self.why_not})"

    def command(
        self, fd: int, scratch: int, *, door: bool, info_fd: int, seccomp: int | None = None
    ) -> list[str]:
        """The whole command line of a child; `scratch` is the size of its folder, `seccomp` an
        open file with a filter."""
        last = [str(fd), "door" if door else "-"]
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
    """How user code is kept apart, where any is allowed. Tries it."""
    if agent.code == "never":
        return Isolation("", "not looked for", own_user=False)
    return detect()


def detect(program: str = "bwrap") -> Isolation:
    """Tries it: a program that is installed may still be forbidden by the kernel."""
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
    """Everything before the command. What is not named here is not there inside; `also` are
    more pairs of what is shown, read-only, and where."""
    user = ("--unshare-user", "--uid", NOBODY, "--gid", NOBODY)
    # Root needs these two to become somebody else; they end with that.
    rights = ("--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")
    return [
        *_APART,
        *(() if network else ("--unshare-net",)),
        "--unshare-cgroup-try",
        "--die-with-parent",
        "--new-session",
        *(rights if root else user),
        # First of all: Python itself may be installed somewhere below it.
        "--perms", "1777", "--size", str(scratch), "--tmpfs", SCRATCH,
        *_file_system([*_shown(), *also]),
        "--proc", "/proc",
        "--dev", "/dev",
        # Last of all: what was made for the mounts above is read-only from here on.
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
    """(what, where): the system, Python with its packages, and our own few files."""
    yield "/usr", "/usr"
    for name in _FROM_ETC:
        yield f"/etc/{name}", f"/etc/{name}"
    executable = Path(sys.executable).resolve().parent.parent
    for prefix in dict.fromkeys((sys.base_prefix, sys.prefix, str(executable))):
        if not PurePath(prefix).is_relative_to("/usr"):
            yield prefix, prefix
    yield str(INSIDE), f"{PACKAGE_ROOT}/skep/downloaders/code/inside"


def _parents(places: Iterator[str]) -> list[str]:
    """Folders that lead to a mount; bubblewrap would make them for root alone."""
    found: dict[str, None] = {}
    for place in places:
        for parent in reversed(PurePath(place).parents):
            found[str(parent)] = None
    return [place for place in found if place not in {"/", SCRATCH}]


def _package_root() -> str:
    return str(Path(__file__).parents[3])
