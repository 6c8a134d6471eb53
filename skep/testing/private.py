"""A program of a test: started on a free port, watched, killed, paused.

`servers` is based on it. A guard process waits at the other end of a pipe and ends the server when
this process dies, for any reason. Nothing here knows a specific product.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

HOST = "127.0.0.1"
START_SECONDS = 30.0
STOP_SECONDS = 15.0
PORT_TRIES = 5
#: Waits for the end of its parent (end of file), then kills the server and deletes its folder.
GUARD = 'read -r _; kill -s KILL -- "-$1" 2>/dev/null; [ -z "$2" ] || rm -rf -- "$2"'


class ServerMissing(RuntimeError):
    """A program is not installed; `package` is the Debian package that has it."""

    def __init__(self, program: str, package: str) -> None:
        super().__init__(f"{program} is not installed; try: apt-get install {package}")
        self.program = program
        self.package = package


class ServerFailed(RuntimeError):
    """A server did not start, or one of its tools reported an error."""


class NotPermitted(RuntimeError):
    """This machine does not permit it (a mount, a network namespace); the text says why."""


class Server:
    """One private server: `start`, `stop`, `kill`, `pause`, `resume`, in any order."""

    package: ClassVar[str]
    program: ClassVar[str]
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, folder: Path | None = None, *, durable: bool = False) -> None:
        self._binary = find_program(self.program, self.package)
        self._temporary = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="skep-server-"))
        self.folder.mkdir(parents=True, exist_ok=True)
        self.durable = durable
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._prepared = False
        self._paused: list[int] = []

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The address of the server's first database, or of its root."""
        raise NotImplementedError

    @property
    def pid(self) -> int:
        """The id of the server's main process."""
        if self._process is None:
            raise ServerFailed(f"{self.program} is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> Path:
        """Output of the server and its tools."""
        return self.folder / "server.log"

    def start(self) -> None:
        """Start it and wait until it answers. The first start chooses the port."""
        if self.running:
            return
        self._reap()
        if not self._prepared:
            self._prepare()
            self._prepared = True
        tries = 1 if self.port else PORT_TRIES
        ports = [self.port or free_port() for _ in range(tries)]
        if not any(self._start_on(port) for port in ports):
            raise ServerFailed(f"{self.program} did not start:\n{self._log_tail()}")

    def stop(self) -> None:
        """Ask it to end, and wait. Its committed data is on disk."""
        if self.running and self._process is not None:
            self.resume()
            self._process.send_signal(self.stop_signal)
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
        self._reap()

    def kill(self) -> None:
        """SIGKILL to the server and all its children."""
        if self.running:
            # Stop it first, so that it cannot start another child.
            os.kill(self.pid, signal.SIGSTOP)
            _signal_all(process_tree(self.pid), signal.SIGKILL)
        self._paused = []
        self._reap()

    def pause(self) -> None:
        """SIGSTOP: connections stay open without an answer."""
        os.kill(self.pid, signal.SIGSTOP)
        self._paused = process_tree(self.pid)
        _signal_all(self._paused, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT, after `pause`."""
        _signal_all(self._paused, signal.SIGCONT)
        self._paused = []

    def close(self) -> None:
        """Stop permanently; a temporary folder is removed."""
        if self._temporary:
            self.kill()
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            self.stop()

    # Implemented by each kind of server.

    def _prepare(self) -> None:
        """Create the files that the first start needs."""

    def _command(self, port: int) -> list[str]:
        raise NotImplementedError

    def _answers(self, port: int) -> bool:
        return bool(exchange(port, b"", expect_bytes=False))

    def _process_options(self) -> dict[str, Any]:
        return {}

    # Common to all servers.

    def _start_on(self, port: int) -> bool:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(port),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._process_options(),
            )
        self._watch(self._process.pid)
        if not self._wait_until_ready(self._process, port):
            self.kill()
            return False
        self.port = port
        return True

    def _wait_until_ready(self, process: subprocess.Popen[bytes], port: int) -> bool:
        deadline = time.monotonic() + START_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            if self._answers(port):
                return process.poll() is None
            time.sleep(0.01)
        return False

    def _watch(self, pid: int) -> None:
        folder = str(self.folder) if self._temporary else ""
        self._guard = subprocess.Popen(
            [find_program("sh", "dash"), "-c", GUARD, "guard", str(pid), folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _reap(self) -> None:
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
        if self._process is not None:
            self._process.wait()
        self._guard = self._process = None

    def _tool(self, program: str, *arguments: str) -> str:
        """Run one of the server's own programs; raises ServerFailed with its output."""
        command = [find_program(program, self.package), *arguments]
        options = self._process_options()
        done: subprocess.CompletedProcess[str] = subprocess.run(
            command, capture_output=True, text=True, check=False, **options
        )
        if done.returncode:
            raise ServerFailed(f"{program} failed ({done.returncode}): {done.stderr[-2000:]}")
        return done.stdout

    def _log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-2000:] if self.log.exists() else ""


def find_program(name: str, package: str) -> str:
    """The path of a program; on Debian those of PostgreSQL are outside the search path."""
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=_version_of)
    if versions:
        return str(versions[-1])
    places = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
    if found := shutil.which(name, path=places):
        return found
    raise ServerMissing(name, package)


def _version_of(program: Path) -> tuple[int, ...]:
    version = program.parent.parent.name
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def free_port() -> int:
    """A port without a listener that no outgoing connection will get.

    Ports that the kernel assigns to clients are avoided: while a killed server is down, a client of
    the same machine could get its port, even by connecting to itself.
    """
    lowest, highest = 10_000, _first_client_port()
    for _ in range(100):
        port = lowest + secrets.randbelow(highest - lowest) if highest > lowest else 0
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise ServerFailed("no free port found")


def _first_client_port() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        return 0


def exchange(port: int, message: bytes, size: int = 1, *, expect_bytes: bool = True) -> bytes:
    """Connect, send, and return the first bytes of the answer; b"" if there is none."""
    try:
        with socket.create_connection((HOST, port), timeout=1) as connection:
            connection.sendall(message)
            return connection.recv(size) if expect_bytes else b"connected"
    except OSError:
        return b""


def process_tree(pid: int) -> list[int]:
    """A process and all its descendants, parents first."""
    parents = dict(_parents())
    tree = [pid]
    for member in tree:
        tree.extend(child for child, parent in parents.items() if parent == member)
    return tree


def _parents() -> Iterator[tuple[int, int]]:
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name in brackets may contain spaces; the parent follows the state.
            parent = status.read_text().rpartition(")")[2].split()[1]
        except (OSError, IndexError):
            continue  # it ended meanwhile
        yield int(status.parent.name), int(parent)


def _signal_all(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
