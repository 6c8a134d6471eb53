"""The sandbox of a job's spider: bubblewrap around `python -m skep.spiders`. Run by centers.

The whole file system is read-only, with a private /tmp, /dev and /run, and without the center's
data folder. The spider has no capabilities and sees no other process. If the center is root, the
spider runs as another user, provided that this user can read Python and the spiders.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from skep.downloaders.code.children import FIRST_UID, UIDS
from skep.downloaders.code.seccomp import filter_file

log = logging.getLogger(__name__)

PROBE_SECONDS = 20.0
_OWN = (Path("/tmp"), Path("/run"), Path("/dev"))  # noqa: S108 - these are created new
_APART = ("--unshare-user", "--disable-userns")
#: Becomes another user and then the program that follows.
_BECOME = (
    "import os, sys; uid = int(sys.argv[1]); os.setgroups([]); os.setresgid(uid, uid, uid); "
    "os.setresuid(uid, uid, uid); os.execv(sys.argv[2], sys.argv[2:])"
)


@dataclass(frozen=True, slots=True)
class SpiderSandbox:
    """The sandbox of this machine; `why_not` says why there is none."""

    arguments: tuple[str, ...] = ()
    why_not: str = ""
    own_user: bool = False

    def command(self, program: list[str], seccomp: int | None) -> list[str]:
        """The whole command line."""
        if not self.arguments:
            return program
        filtered = () if seccomp is None else ("--seccomp", str(seccomp))
        user: list[str] = []
        if self.own_user:
            uid = str(FIRST_UID + secrets.randbelow(UIDS))
            user = [sys.executable, "-I", "-S", "-c", _BECOME, uid]
        return [*self.arguments, *filtered, "--", *user, *program]


def working_sandbox(hidden: Path, shown: Path) -> SpiderSandbox:
    """Test it: an installed program may still be forbidden by the kernel. Blocks."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return SpiderSandbox(why_not="bubblewrap is not installed")
    root = os.geteuid() == 0
    problem = ""
    # The strictest first. Bubblewrap before 0.8 cannot disable user namespaces.
    users = ((True, ()), (False, ())) if root else ((False, _APART), (False, _APART[:1]))
    for own_user, apart in users:
        arguments = _arguments(hidden, shown, apart, own_user)
        box = SpiderSandbox((bwrap, *arguments), own_user=own_user)
        problem = _tried(box)
        if not problem:
            if root and not own_user:
                log.warning("spiders of jobs run as root: no other user can read %s", sys.prefix)
            return box
    return SpiderSandbox(why_not=f"bubblewrap does not work here: {problem}")


def _arguments(hidden: Path, shown: Path, apart: tuple[str, ...], own_user: bool) -> Iterator[str]:
    yield from ("--die-with-parent", "--unshare-pid", "--as-pid-1", "--unshare-ipc")
    yield from ("--unshare-uts", "--unshare-cgroup-try", "--cap-drop", "ALL")
    if own_user:  # they are dropped when it becomes that user
        yield from ("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")
    yield from apart
    yield from ("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev")
    yield from ("--tmpfs", "/dev/shm", "--remount-ro", "/dev")  # noqa: S108 - private
    yield from ("--perms", "1777", "--tmpfs", "/tmp", "--tmpfs", "/run")  # noqa: S108 - private
    names = Path("/etc/resolv.conf").resolve()
    needed = dict.fromkeys((names, *_python(), shown))
    # For example a home folder that contains Python: another user could not pass through it.
    closed = dict.fromkeys(filter(None, map(_closed, needed))) if own_user else {}
    for folder in closed:
        yield from ("--perms", "0755", "--tmpfs", str(folder))
    for path in needed:
        for own in (*_OWN, *closed):
            if path.is_relative_to(own):
                yield from _bound(path, own)
    yield from ("--tmpfs", str(hidden))
    if shown.is_relative_to(hidden):
        yield from ("--ro-bind", str(shown), str(shown))
    yield from ("--remount-ro", str(hidden), "--chdir", str(shown))


def _bound(path: Path, below: Path) -> Iterator[str]:
    """Bind it read-only; bubblewrap would create the parent folders for root only."""
    for folder in reversed(path.parents):
        if folder.is_relative_to(below) and folder != below:
            yield from ("--perms", "0755", "--dir", str(folder))
    yield from ("--ro-bind-try", str(path), str(path))


def _closed(path: Path) -> Path | None:
    """The first folder above it that others cannot pass through."""
    for folder in reversed(path.parents):
        if not folder.stat().st_mode & stat.S_IXOTH:
            return folder
    return None


def _python() -> Iterator[Path]:
    """Python, its packages and Skep itself."""
    yield from (Path(sys.base_prefix), Path(sys.prefix), Path(sys.executable).resolve().parent)
    yield Path(__file__).parents[3]
    for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        if entry:
            yield Path(entry).absolute()


def _tried(box: SpiderSandbox) -> str:
    """Why it does not work; "" when it does."""
    seccomp = filter_file(counted=True)
    files = () if seccomp is None else (seccomp,)
    try:
        done = subprocess.run(  # noqa: S603 - our own arguments
            box.command(
                [sys.executable, "-c", "import skep.spiders, os; os.listdir('.')"], seccomp
            ),
            capture_output=True,
            timeout=PROBE_SECONDS,
            check=False,
            pass_fds=files,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)[:200]
    finally:
        for file in files:
            os.close(file)
    return (
        done.stderr.decode(errors="replace").strip()[-200:] or "it fails" if done.returncode else ""
    )
