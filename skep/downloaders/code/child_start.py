"""Starts and ends a child process. Blocking; agents call it in a thread.

No child may outlive its agent, and no process that a child started may outlive the child. In a
sandbox bubblewrap and the kernel ensure that; without one the descendants are searched and killed.
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
#: Field of /proc/PID/stat after the name, which may contain anything.
_PARENT_FIELD = 1


class NotStarted(Exception):
    """The child did not start; the text says why."""


@dataclass(slots=True)
class Child:
    """A process that has started and has not received user code yet."""

    process: subprocess.Popen[bytes]
    sock: socket.socket
    #: The listener of the sandbox for the egress proxy; None = no network, or all of it.
    listener: socket.socket | None
    #: Becomes readable when the process has ended.
    pidfd: int
    #: The first process in the sandbox: when it ends, all others end.
    inner: int | None
    #: The scratch folder if there is no sandbox.
    folder: Path | None
    #: The user that it will become; 0 = no separate user.
    uid: int
    _lock: Lock = field(default_factory=Lock)
    _reaped: bool = False

    def kill(self) -> None:
        """End it with all its descendants. Blocks only without a sandbox."""
        with self._lock:
            if self._reaped:  # its process ids may belong to other processes now
                return
            if self.inner is None:
                kill_tree(self.process.pid, self.uid)
            else:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self.inner, signal.SIGKILL)
            with suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def ending(self) -> str:
        """How it ended; call it only after its end. bubblewrap adds 128 to a signal."""
        code = self.process.wait()
        number = -code if code < 0 else code - 128 if self.inner is not None else 0
        if number <= 0:
            return f"exit code {code}"
        with suppress(ValueError):
            return f"signal {signal.Signals(number).name}"
        return f"exit code {code}"

    def reap(self) -> int:
        """Free all resources after its end; return the exit code. Blocks for the folder."""
        code = self.process.wait()
        if self.inner is not None:
            # It ends when every process in the sandbox has ended.
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
    proxied = network and isolation.boxed
    seccomp = filter_file(counted=True) if isolation.boxed else None
    extra = () if seccomp is None else (seccomp,)
    try:
        command = isolation.command(
            theirs.fileno(), scratch, proxied=proxied, info_fd=info_theirs, seccomp=seccomp
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
        child.listener = _hear(ours)
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
    """Start without our environment or a terminal, in a new session; raises OSError."""
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
    """The first process in the sandbox, as bubblewrap reports it."""
    data = b""
    poll = select.poll()
    poll.register(info, select.POLLIN)
    while poll.poll(START_SECONDS * 1000) and (piece := os.read(info, 4096)):
        data += piece
    return os.pidfd_open(int(json.loads(data)["child-pid"]))


def _hear(ours: socket.socket) -> socket.socket | None:
    """The child's first byte, possibly with its listener for the egress proxy."""
    ours.settimeout(START_SECONDS)
    said, fds, _, _ = socket.recv_fds(ours, 1, 1)
    if not said:
        raise EOFError("it ended immediately")
    ours.setblocking(False)
    return socket.socket(fileno=fds[0]) if fds else None


def _said(child: Child, error: Exception) -> str:
    """Why it did not start: its own error output if there is any."""
    child.kill()
    stream = child.process.stderr
    words = stream.read(2000).decode(errors="replace") if stream is not None else ""
    child.reap()
    return " ".join(f"the child process did not start: {words or error}".split())


def kill_tree(root: int, uid: int) -> None:
    """Kill a process, its group and all its descendants, in any session.

    The root is killed last: while it lives, orphans become its children and can be found. After
    its end, only a separate user identifies the processes that belonged to it.
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
    """Living descendants of a process."""
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
