"""The files of an agent: its id, and the runs that it works for.

Runs in the agent's process. The center decides; these files only let a restarted agent be the same
agent and continue. A damaged file is ignored, never fatal. A file holds the name of its run and no
settings, which may contain passwords: those come with every lease.
"""

from __future__ import annotations

import logging
from pathlib import Path
from random import Random
from threading import RLock

import msgspec

from skep.errors import ConfigurationError
from skep.model.run import RunSettings
from skep.runtime.clock import Clock
from skep.runtime.files import UnreadableFile, read_line, read_or_none, remove, write_durably
from skep.runtime.ids import new_id

log = logging.getLogger(__name__)

#: Maximum runs; beyond that the least recently used one is deleted.
RUNS_KEPT = 1000
_SUFFIX = ".run"
_ID_LIMIT = 64
_NEW_AGENT = (
    "write the id that `skep agents` shows for this machine into it, or delete it to start as"
    " a new agent"
)


class _Allocation(msgspec.Struct):
    run: str
    #: Earlier versions wrote the settings, unencrypted.
    settings: object = None


def agent_id(folder: Path, clock: Clock, rng: Random) -> str:
    """The id in `folder/agent-id`, created at the first start."""
    file = folder / "agent-id"
    if file.exists() and file.stat().st_size:
        return read_agent_id(file)
    folder.mkdir(parents=True, exist_ok=True)
    fresh = new_id("agent", clock.now(), rng)
    write_durably(file, f"{fresh}\n".encode())
    return fresh


def read_agent_id(file: Path) -> str:
    """Raises ConfigurationError with the file name. The id is never recreated automatically:
    results and credentials of this folder belong to the existing id."""
    try:
        known = read_line(file)
    except UnreadableFile as error:
        raise ConfigurationError(f"{error}; {_NEW_AGENT}") from error
    if len(known) > _ID_LIMIT or not (known.isascii() and known.isprintable()):
        raise ConfigurationError(f"{file} does not contain a valid agent id; {_NEW_AGENT}")
    return known


class AgentFolder:
    """The allocations of one agent, one file per run. Its methods block on the disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "runs"
        #: None: stored by an earlier process, and its settings have not arrived yet.
        self._runs: dict[str, RunSettings | None] = {}
        #: Runs that are in memory only.
        self._hidden: set[str] = set()
        self._lock = RLock()

    def open(self) -> None:
        """Load the allocations of earlier processes of the agent."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o700)
        for torn in self._folder.glob(f"*{_SUFFIX}.new"):
            torn.unlink(missing_ok=True)  # left by a process that died while writing
        for path in sorted(self._folder.glob(f"*{_SUFFIX}"), key=lambda p: p.stat().st_mtime):
            if found := _read(path):
                self._runs[found.run] = None
                if found.settings is not None:
                    self._write(found.run)
            else:
                log.warning("workspace: ignored %s: it cannot be read", path.name)
                path.unlink(missing_ok=True)

    def names(self) -> list[str]:
        """The stored runs, for a center to tell which of them have ended."""
        return list(self._runs)

    def remembers(self, run: str) -> bool:
        """Whether a run was allocated, in this or an earlier process, and not released."""
        return run in self._runs

    def settings_of(self, run: str) -> RunSettings | None:
        """None for a run that was never allocated, or has been released, or whose settings have not
        arrived since the start."""
        return self._runs.get(run)

    def knows(self, run: str, settings: RunSettings) -> bool:
        """Whether `allocate` would change nothing."""
        return self._runs.get(run) == settings

    def allocate(self, run: str, settings: RunSettings) -> None:
        """Store a run; a disk error is logged, and the work continues."""
        with self._lock:
            unwritten = run not in self._runs or run in self._hidden
            self._runs.pop(run, None)
            self._runs[run] = settings
            if unwritten:
                self._hidden.discard(run)
                self._write(run)
            for old in list(self._runs)[:-RUNS_KEPT]:
                self.release(old)

    def _write(self, run: str) -> None:
        try:
            write_durably(self._file(run), msgspec.msgpack.encode({"run": run}))
        except OSError as error:
            log.warning("workspace: cannot store run %s: %s", run, error.strerror)

    def hide(self, run: str) -> None:
        """Remove the file of a run that has ended and still has downloads here."""
        with self._lock:
            self._hidden.add(run)
            remove(self._file(run))

    def release(self, run: str) -> None:
        """Delete a run."""
        with self._lock:
            self._runs.pop(run, None)
            self._hidden.discard(run)
            remove(self._file(run))

    def _file(self, run: str) -> Path:
        # Hex, because two run ids can differ only in case.
        return self._folder / f"{run.encode().hex()}{_SUFFIX}"


def _read(path: Path) -> _Allocation | None:
    data = read_or_none(path)
    try:
        return msgspec.msgpack.decode(data, type=_Allocation) if data else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
