"""Starting and ending a child process. Blocking; agents call it in a thread.

No child may outlive its agent, and none of what a child has started may outlive the child:
bubblewrap and the kernel see to that in a box. Without one we look for its descendants.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from skep.downloaders.code.isolation import ENVIRONMENT, SCRATCH, Isolation
from skep.downloaders.code.seccomp import filter_file

START_SECONDS = 20.0
END_SECONDS = 10.0
_KILL_ROUNDS = 50
#: Fields of /proc/PID/stat behind the name, which may hold anything.
_PARENT_FIELD = 1


class NotStarted(Exception):
    """The child did not come up; the text says why."""


@dataclass(slots=True)
class Child:
    """A process that has said that it is there, and has not seen user code yet."""

    process: subprocess.Popen[bytes]
    sock: socket.socket
    #: Where the box asks for the network; None when it has none, or all of it.
    door: socket.socket | None
    #: Becomes readable when the process has ended.
    pidfd: int
    #: The first process in the box: its end is the end of all.
    inner: int | None
    #: The scratch folder where there is no box.
    folder: Path | None
    #: The user that it will become; 0 = none of its own.
    uid: int
    _lock: Lock = field(default_factory=Lock)
    _reaped: bool = False

    def kill(self) -> None:
        """End it with all its descendants. Blocks only where there is no box."""
        with self._lock:
            if self._reaped:  # its numbers may be somebody else's by now
                return
            if self.inner is None:
                kill_tree(self.process.pid, self.uid)
            else:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self.inner, signal.SIGKILL)
            with suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def ending(self) -> str:
        """How it ended; only to be asked when it has. bubblewrap adds 128 to a signal."""
        code = self.process.wait()
        number = -code if code < 0 else code - 128 if self.inner is not None else 0
        if number <= 0:
            return f"exit code {code}"
        with suppress(ValueError):
            return f"signal {signal.Signals(number).name}"
        return f"exit code {code}"

    def reap(self) -> int:
        """After its end: free everything, and say how it ended. Blocks for the folder."""
        code = self.process.wait()
        if self.inner is not None:
            # It ends when everything in the box has ended.
            poll = select.poll()
            poll.register(self.inner, select.POLLIN)
            poll.poll(END_SECONDS * 1000)
        with self._lock:
            self._reaped = True
            self._close()
        return code

    def _close(self) -> None:
        self.sock.close()
        for fd in (self.pidfd, self.inner):
            if fd is not None:
                os.close(fd)
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def start_child(isolation: Isolation, scratch: int, uid: int, *, network: bool) -> Child:
    """Raises NotStarted."""
    ours, theirs = socket.socketpair()
    info, info_theirs = os.pipe()
    folder = None if isolation.boxed else _folder(uid)
    door = network and isolation.boxed
    seccomp = filter_file(counted=True) if isolation.boxed else None
    extra = () if seccomp is None else (seccomp,)
    try:
        command = isolation.command(
            theirs.fileno(), scratch, door=door, info_fd=info_theirs, seccomp=seccomp
        )
        process = _start(command, folder, (theirs.fileno(), info_theirs, *extra))
    except OSError as error:
        ours.close()
        os.close(info)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        raise NotStarted(f"cannot start a child process: {error}") from error
    finally:
        theirs.close()
        for fd in (info_theirs, *extra):
            os.close(fd)
    child = Child(process, ours, None, os.pidfd_open(process.pid), None, folder, uid)
    try:
        if isolation.boxed:
            child.inner = _inner(info)
        child.door = _hear(ours)
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise NotStarted(_said(child, error)) from error
    finally:
        os.close(info)
        if process.stderr is not None:
            process.stderr.close()
    return child


def _start(
    command: list[str], folder: Path | None, fds: tuple[int, ...]
) -> subprocess.Popen[bytes]:
    """Nothing of our environment, no terminal, a session of its own; raises OSError."""
    home = SCRATCH if folder is None else str(folder)
    return subprocess.Popen(  # noqa: S603 - our own arguments
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**ENVIRONMENT, "HOME": home, "TMPDIR": home},
        cwd=folder or "/",
        pass_fds=fds,
        start_new_session=True,
    )


def _folder(uid: int) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="skep-code-"))
    if uid:
        os.chown(folder, uid, uid)
    return folder


def _inner(info: int) -> int:
    """bubblewrap tells the number of the first process in the box."""
    data = b""
    poll = select.poll()
    poll.register(info, select.POLLIN)
    while poll.poll(START_SECONDS * 1000) and (piece := os.read(info, 4096)):
        data += piece
    return os.pidfd_open(int(json.loads(data)["child-pid"]))


def _hear(ours: socket.socket) -> socket.socket | None:
    """The child's first byte, perhaps with the listener of its door."""
    ours.settimeout(START_SECONDS)
    said, fds, _, _ = socket.recv_fds(ours, 1, 1)
    if not said:
        raise EOFError("it ended at once")
    ours.setblocking(False)
    return socket.socket(fileno=fds[0]) if fds else None


def _said(child: Child, error: Exception) -> str:
    """Why it did not start: its own last words are better than ours."""
    child.kill()
    stream = child.process.stderr
    words = stream.read(2000).decode(errors="replace") if stream is not None else ""
    child.reap()
    return " ".join(f"the child process did not start: {words or error}".split())


def kill_tree(root: int, uid: int) -> None:
    """A process, its group, and all that descend from it, whatever session they are in.

    The root goes last: as long as it lives, orphans come to it and can be found. After its
    own end, only a user of its own still tells who belonged to it.
    """
    for _ in range(_KILL_ROUNDS):
        found = descendants(root) + (owned_by(uid) if uid else [])
        if root in found:
            found.remove(root)
        if not found:
            break
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(root, signal.SIGKILL)


def descendants(root: int) -> list[int]:
    """Living children of a process, and theirs."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (parent := _parent(entry)) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    found, ahead = [], [root]
    while ahead:
        ahead += (theirs := children.get(ahead.pop(), []))
        found += theirs
    return found


def owned_by(uid: int) -> list[int]:
    """Living processes of a user."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid == uid and _parent(entry) is not None:
                found.append(int(entry.name))
    return found


def _parent(entry: Path) -> int | None:
    try:
        fields = (entry / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[_PARENT_FIELD])
