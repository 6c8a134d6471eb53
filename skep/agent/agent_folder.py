"""What an agent remembers on disk: its id, and the runs that it works for.

Runs in the agent's process. The center is the truth; these files only let a restarted
agent be the same agent and carry on (A4). A torn file is forgotten, never fatal. A file holds
the name of its run and no settings, which may hold passwords: those come with every lease.
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

#: Runs remembered; beyond that the one that was used longest ago is forgotten.
RUNS_KEPT = 1000
_SUFFIX = ".run"
_ID_LIMIT = 64
_NEW_AGENT = (
    "write the id that `skep agents` shows for this machine into it, or delete it to start as"
    " a new agent"
)


class _Allocation(msgspec.Struct):
    run: str
    #: Earlier versions wrote the settings, in clear.
    settings: object = None


def agent_id(folder: Path, clock: Clock, rng: Random) -> str:
    """The id in `folder/agent-id`, made at the first start."""
    file = folder / "agent-id"
    if file.exists() and file.stat().st_size:
        return read_agent_id(file)
    folder.mkdir(parents=True, exist_ok=True)
    fresh = new_id("agent", clock.now(), rng)
    write_durably(file, f"{fresh}\n".encode())
    return fresh


def read_agent_id(file: Path) -> str:
    """Raises ConfigurationError that names the file. It is never made anew by itself: results
    and credentials of this folder belong to the id that was there."""
    try:
        known = read_line(file)
    except UnreadableFile as error:
        raise ConfigurationError(f"{error}; {_NEW_AGENT}") from error
    if len(known) > _ID_LIMIT or not (known.isascii() and known.isprintable()):
        raise ConfigurationError(f"{file} does not hold an agent's id; {_NEW_AGENT}")
    return known


class AgentFolder:
    """The allocations of one agent, one file per run. Its methods block on the disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "runs"
        #: None: remembered by an earlier process, and its settings did not come yet.
        self._runs: dict[str, RunSettings | None] = {}
        #: Remembered in memory only.
        self._hidden: set[str] = set()
        self._lock = RLock()

    def open(self) -> None:
        """Load what an earlier life of the agent was allocated to."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o700)
        for torn in self._folder.glob(f"*{_SUFFIX}.new"):
            torn.unlink(missing_ok=True)  # of a process that died while it wrote
        for path in sorted(self._folder.glob(f"*{_SUFFIX}"), key=lambda p: p.stat().st_mtime):
            if found := _read(path):
                self._runs[found.run] = None
                if found.settings is not None:
                    self._write(found.run)
            else:
                log.warning("workspace: forgot %s, it cannot be read", path.name)
                path.unlink(missing_ok=True)

    def names(self) -> list[str]:
        """Runs that are remembered, for a center to say which of them are over."""
        return list(self._runs)

    def remembers(self, run: str) -> bool:
        """Whether it was allocated, in this process or in an earlier one, and not released."""
        return run in self._runs

    def settings_of(self, run: str) -> RunSettings | None:
        """None for a run that was never allocated, or has been released, or whose settings
        did not come since the start."""
        return self._runs.get(run)

    def knows(self, run: str, settings: RunSettings) -> bool:
        """Whether `allocate` would change nothing."""
        return self._runs.get(run) == settings

    def allocate(self, run: str, settings: RunSettings) -> None:
        """Remember a run; a disk that does not take it is logged, and the work goes on."""
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
            log.warning("workspace: cannot remember run %s: %s", run, error.strerror)

    def hide(self, run: str) -> None:
        """Remove the file of a run that has ended and still has downloads here."""
        with self._lock:
            self._hidden.add(run)
            remove(self._file(run))

    def release(self, run: str) -> None:
        """Forget a run for good."""
        with self._lock:
            self._runs.pop(run, None)
            self._hidden.discard(run)
            remove(self._file(run))

    def _file(self, run: str) -> Path:
        # Hex, because a run's id may differ from another only in case.
        return self._folder / f"{run.encode().hex()}{_SUFFIX}"


def _read(path: Path) -> _Allocation | None:
    data = read_or_none(path)
    try:
        return msgspec.msgpack.decode(data, type=_Allocation) if data else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
