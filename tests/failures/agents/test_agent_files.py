"""An agent killed at every step on its disk (fault 18)."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from skep.agent.agent_folder import AgentFolder
from skep.testing.fleet import tell

#: Allocates a and b, releases a, allocates c; dies before its n-th step on the disk.
DYING = """
import os, signal, sys
from pathlib import Path

folder, fatal = Path(sys.argv[1]), int(sys.argv[2])
from skep.agent.agent_folder import AgentFolder
from skep.model.run import RunSettings

space = AgentFolder(folder)
space.open()
seen = 0

def watch(event, arguments):
    global seen
    if event in ("open", "os.rename", "os.remove", "os.mkdir") and str(folder) in str(arguments):
        step()

def step():
    global seen
    seen += 1
    if seen == fatal:
        os.kill(os.getpid(), signal.SIGKILL)

sync = os.fsync
def fsync(file):
    step()
    sync(file)
os.fsync = fsync
sys.addaudithook(watch)

def did(what):
    os.write(1, what.encode() + b"\\n")

space.allocate("a", RunSettings()); did("+a")
space.allocate("b", RunSettings()); did("+b")
space.release("a"); did("-a")
space.allocate("c", RunSettings()); did("+c")
did("end")
"""


def test_allocations_survive_a_kill_at_every_step(tmp_path: Path) -> None:
    """Fault 18, A4: what was allocated is there, what was released is not, nothing is torn."""
    kills = 0
    for fatal in range(1, 100):
        folder = tmp_path / str(fatal)
        arguments = [sys.executable, "-c", DYING, str(folder), str(fatal)]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        said = done.stdout.split()
        runs = reopened(folder)
        for run in "abc":
            if f"-{run}" in said:
                assert run not in runs, f"released {run} came back after step {fatal}"
            elif f"+{run}" in said and not (run == "a" and "+b" in said):
                assert run in runs, f"{run} was lost after step {fatal}"
        assert not list(folder.rglob("*.new"))
        if "end" in said:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        kills += 1
    assert kills >= 15, "each write has an open, two syncs and a rename"
    assert runs == {"b", "c"}
    tell("18", kills=kills, lost=0, resurrected=0, torn=0)


def reopened(folder: Path) -> set[str]:
    space = AgentFolder(folder)
    space.open()
    return set(space.names())
