"""The page of requirement ids: the meaning of each id, and the tests that name it in a docstring.

Titles are defined here, tests are found by reading `tests/`. An id in a docstring without a title
here is an error, so that the page is always complete.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
#: An id anywhere in a docstring. `S3` is also a kind of storage: see `_OPENING`.
_ID = re.compile(r"(?<![\w.-])[A-Z]\d{1,2}\b(?![\w.-]\w)")
_STORAGE = "S3"
#: A docstring, a sentence or a bracket that starts with ids and fault numbers.
_OPENING = re.compile(r"(?:^|\(|[.;] )(?:[A-Z]\d{1,2}|[Ff]aults? [\d, ]+)(?:, [A-Z]?\d{1,2})*[:.)]")

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)

FAMILIES = {
    "C": "Center",
    "A": "Agent",
    "D": "Dispatch and downloads",
    "R": "Runs, spiders and reliability",
    "P": "Projects and jobs",
    "M": "Mirrors",
    "E": "Engine",
    "S": "Security",
    "H": "HTTP, politeness and archive",
    "U": "Use",
}
TITLES = {
    "C1": "All download work passes a center, which gives it to agents.",
    "C2": "Agents register and send heartbeats; both say what the agent is and how busy it is.",
    "C3": "A silent agent counts as dead and loses its blocks; a disabled one gets no new work.",
    "C4": "A run that needs agents waits until they are chosen, or fails to start with the reason.",
    "C5": "Placement strategies: any, fixed, chained and hashed.",
    "C6": "A chained request returns to the agent that found it; the run reacts when it is gone.",
    "C7": "Requests are leased in blocks; each change of a block is kept with a text.",
    "C8": "HTTP APIs for agents and for runs: heartbeats, blocks, commands, a queue per run.",
    "C9": "Several centers share one store and one bus; any of them may die.",
    "C10": "A message that waited is judged by its age when a center receives it.",
    "A1": "An agent needs outbound HTTP only.",
    "A2": "An agent executes commands: allocate, release, pause, exit.",
    "A3": "Each run has its own downloader, with its own cookies, connections and limits.",
    "A4": "Allocations are files of the agent and survive a restart.",
    "A5": "Content rules cut a response before it is sent to the center.",
    "A6": "Proxies and redials are switched by patterns or after a number of requests.",
    "A7": "Results wait on the agent's disk while no center answers, and arrive oldest first.",
    "A8": "Agents host application jobs: start, stop, restart, logs.",
    "D1": "Jobs, their code and their generators are validated before they are stored.",
    "D2": "Seven priorities in four lanes.",
    "D3": "Lanes are bounded; requests that do not fit wait, and nothing is lost.",
    "D4": "A dispatch is bounded in total, per job and in time, and writes a log.",
    "D5": "Failed requests and lost leases are retried up to a limit.",
    "D6": "Kinds of downloaders and schemes of plug-ins; each kind can be switched off.",
    "D7": "A download over its time limit is ended with all its child processes.",
    "D8": "Each download leaves its data and a log of what happened.",
    "R1": "Runs: spiders are classes that run in a terminal or as jobs. "
    "Reliability: a start that fails ends the process.",
    "R2": "Runs: pause, continue, restart and stop. Reliability: small files survive a power cut.",
    "R3": "Runs: figures at any time. "
    "Reliability: archived bytes that the store does not know are kept and reported.",
    "R4": "Runs: logs of a run. Reliability: a frozen center does not stop the others.",
    "R5": "Runs: rules for requests that get no answer. "
    "Reliability: agents leave a frozen center within seconds.",
    "R6": "Runs: the processes of spiders are known. "
    "Reliability: a lost archive folder is noticed before the next acknowledgement.",
    "R7": "Reliability: an agent that lost its identity still delivers what it downloads.",
    "R8": "Runs: a run shows its arguments and its blocks. "
    "Reliability: a clock that is set back does not silence schedules.",
    "R9": "Reliability: damaged files and slow servers are named in one sentence.",
    "P3": "Jobs with schedules, arguments and notes, checked before they are stored.",
    "P4": "People: users, sessions, scopes and the audit log.",
    "M1": "Git repositories are mirrored from any git URL: polled, then fetched.",
    "M2": "Keys are distributed by consistent hashing; a change moves only its share.",
    "M3": "The poll interval adapts to activity, within rate limits, with retry and back-off.",
    "M4": "A signed webhook starts the update of its repository.",
    "M7": "Broken, deleted and refused upstreams are noticed and recovered from.",
    "E1": "A run that ends leaves nothing in the lanes.",
    "E2": "A center that was frozen does not touch runs that another center took over.",
    "E3": "Due times and starts of placed jobs survive a restart of the center.",
    "E4": "Items reach a sink that was away when the run ended.",
    "E5": "Positions of sinks are stored; a takeover repeats at most one batch.",
    "E6": "A job without a spider cannot have sinks.",
    "E7": "Agents delete what they keep of a run when the run ends.",
    "E8": "Calls that wait for agents last as long as the center waits, and name the error.",
    "E9": "robots.txt and rate limits apply only to downloads over the network.",
    "E10": "Each round of a dispatch takes at most the job's number of requests.",
    "E11": "Smaller corrections of lint, dead letters, listings and messages that waited.",
    "S1": "A hostile database server gets no file of the center.",
    "S2": "Wheels of applications are installed offline and from wheels only.",
    "S3": "Heads, connections and times of callers without a token are bounded.",
    "S4": "Callers who may only look see no credentials.",
    "S5": "Connections of jobs use no password, file or socket of the center.",
    "S6": "Egress rules apply to everything that a job names.",
    "S7": "Isolation of user code: no capabilities, a read-only file system, its own user.",
    "S8": "Every list, number and text of a message has a bound.",
    "S9": "Stored bodies are read in pieces, with a limit, outside the event loop.",
    "S10": "Wrong tokens of one caller do not lock out valid tokens.",
    "S11": "Applications cannot name secrets of the center.",
    "S12": "An agent has ceilings for what user code may ask for.",
    "S13": "Smaller corrections: permissions of files, deep documents, networks of containers.",
    "H1": "Loopback and private addresses are reached only where a person named them.",
    "H2": "Requests wait while robots.txt cannot be fetched.",
    "H3": "After a bounded number of tries the requests of a dead host fail together.",
    "H4": "A change of protocol (101) is a failure.",
    "H5": "Every archived record can be read by common WARC readers.",
    "H6": "Digests of payloads, and a record for each redirect.",
    "H7": "Unknown content codings count as none; a damaged body is kept as received.",
    "H8": "Odd answers have the right failure class; limits are documented.",
    "U1": "The API is fully described, and clients can be generated from it.",
    "U2": "A retry uses the current revision of the job.",
    "U3": "Failed starts print a sentence and an exit code, and leave no files.",
    "U4": "Commands that wait say why requests failed.",
    "U5": "`skep why` names the last failure and the next action.",
    "U6": "One rule for the exit codes of all commands that wait.",
    "U7": "Output fits the terminal; help is grouped and suggests names.",
    "U8": "Documented ways to install; hints work when they are pasted.",
    "U9": "Backup and restore; a copied data folder is recognized.",
    "U10": "An absent broker is one clear message, repeated seldom.",
    "U11": "Unknown names are errors that name the choices.",
    "U12": "Small things of every day: arguments of one run, progress, finishing a run.",
    "U13": "Wrong input is answered with the value, what is allowed and what to do.",
    "U14": "The tests pass on machines without namespaces or containers.",
    "U15": "`skep run` of one page is fast.",
}
INTRODUCTION = """\
A test that proves a requirement names its id in a docstring: "E11: ...". This page lists the
ids, what each of them asks for, and the files of the tests that name it. R1 to R9 are used for
two lists, of runs and of reliability; the docstring of a test shows which one it means. The
numbers of faults are in `tests/failures/rows.txt`."""


class UnknownId(Exception):
    """A docstring of a test names an id that has no title here."""


def page(made: str) -> str:
    """The reference page; `made` is the comment under its title."""
    tests = ids_of_tests()
    if unknown := sorted(tests.keys() - TITLES.keys()):
        raise UnknownId(f"{', '.join(unknown)}: add a title to tools/requirement_ids.py")
    lines = ["# Requirements", "", made, "", INTRODUCTION]
    for letter, family in FAMILIES.items():
        lines += [
            "",
            f"## {family}",
            "",
            "| id | requirement | tests in `tests/` |",
            "|---|---|---|",
        ]
        lines += [_row(name, tests.get(name, [])) for name in TITLES if name.startswith(letter)]
    return "\n".join([*lines, ""])


def _row(name: str, files: list[str]) -> str:
    shown = ", ".join(f"`{file}`" for file in files)
    return f"| {name} | {TITLES[name]} | {shown or 'none'} |"


def ids_of_tests() -> dict[str, list[str]]:
    """The files that name each id."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        name = path.relative_to(TESTS).as_posix()
        named = {one for text in docstrings_of(path.read_text()) for one in ids_in(text)}
        for one in named:
            found.setdefault(one, []).append(name)
    return found


def docstrings_of(source: str) -> Iterator[str]:
    """The docstrings of the module, its classes and its tests, each on one line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _FUNCTIONS) and not node.name.startswith("test"):
            continue
        if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)):
            yield " ".join(text.split())


def ids_in(text: str) -> set[str]:
    found = set(_ID.findall(text)) - {_STORAGE}
    openings = " ".join(_OPENING.findall(text))
    return found | ({_STORAGE} & set(_ID.findall(openings)))
