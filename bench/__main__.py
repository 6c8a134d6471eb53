"""The command: `python -m bench NAME [--json]`, `python -m bench all`, `--list`.

With --json the last line of output is one JSON object and the exit code says whether every
bar holds. `all` writes docs/benchmarks.md too.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from bench import machine
from bench.figures import Result, Wrong, neat
from bench.options import Options
from bench.page import table, write

#: Name -> (module with `run`, its question). In the order of the page.
BENCHES: dict[str, tuple[str, str]] = {
    "enqueue": ("bench.enqueue", "how fast are requests accepted and stored durably?"),
    "drain": ("bench.drain", "how fast are blocks leased and acknowledged durably?"),
    "fetch": ("bench.fetch", "how much CPU does a downloaded page cost?"),
    "crawl": ("bench.crawl", "how fast is a site crawled, compared with Scrapy?"),
    "jobs": ("bench.jobs", "how fast is sandboxed user code, compared with job queues?"),
    "backlog": ("bench.backlog", "is it as fast with ten million waiting requests as with ten?"),
    "kill": ("bench.kill.bench", "is anything lost when processes are killed with -9?"),
    "survive": ("bench.survive.bench", "does a crawl survive the death of its processes?"),
    "failover": ("bench.failover", "does any call fail when centers are killed in turn?"),
    "polite": ("bench.polite", "does a host ever get more requests than its rule allows?"),
    "fleet": ("bench.fleet", "how fast is a heartbeat answered with a thousand agents?"),
    "capacity": ("bench.capacity", "how many centers does a larger fleet need? (simulated)"),
    "logs": ("bench.logs", "how fast are log lines stored, and how fast is a word found?"),
    "lists": ("bench.lists", "how fast does a list answer, by every field of its filter?"),
    "silent": ("bench.silent", "how many runs with a wrong result are found?"),
    "bulk": (
        "bench.operations.bulk",
        "how long does a bulk retry take, and does it slow other work?",
    ),
    "events": (
        "bench.operations.events",
        "how much do 200 event streams cost, and how late are they?",
    ),
    "pipeline": (
        "bench.pipelines.conditions",
        "how fast is a condition of a pipeline, compared with Python?",
    ),
    "polling": (
        "bench.mirrors.polling",
        "how long does a push wait for the next poll? (simulated)",
    ),
    "start": ("bench.start", "how fast does it start, and how much memory does it need?"),
    "soak": ("bench.soak.bench", "does memory grow over time? (not part of `all`)"),
}
#: Not part of `all`: the user chooses its duration, and a longer one is more exact.
ALONE = "soak"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("name", nargs="?", default="all", choices=[*BENCHES, "all"])
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--list", action="store_true", help="list the benchmarks")
    default = Options()
    parser.add_argument("--rounds", type=int, default=default.rounds, help="at least three")
    parser.add_argument("--kills", type=int, default=default.kills, help="for kill, per set-up")
    parser.add_argument("--requests", type=int, default=default.requests, help="for kill")
    parser.add_argument("--seed", type=int, default=default.seed, help="for kill")
    parser.add_argument("--backlog", type=int, default=default.backlog, help="for backlog")
    parser.add_argument("--agents", type=int, default=default.agents, help="for fleet")
    parser.add_argument("--listed", type=int, default=default.listed, help="for lists, requests")
    parser.add_argument("--lines", type=int, default=default.lines, help="for logs, to search")
    parser.add_argument(
        "--repositories", type=int, default=default.repositories, help="for polling"
    )
    parser.add_argument(
        "--minutes", type=float, default=default.minutes, help="for soak; ten or more"
    )
    parser.add_argument(
        "--set", action="append", default=[], help="one set-up (kill, soak) or database (backlog)"
    )
    chosen = parser.parse_args(arguments)
    if chosen.rounds < 3:
        parser.error("--rounds must be at least 3")
    return chosen


def measure(name: str, options: Options) -> dict[str, Any]:
    """Run one benchmark; the result includes the load of the machine."""
    before, (stolen, ticks) = machine.load(), machine.stolen()
    result: Result = import_module(BENCHES[name][0]).run(options)
    told = result.told()
    lost = [now - then for now, then in zip(machine.stolen(), (stolen, ticks), strict=True)]
    company = {"before": neat(before), "after": neat(machine.load())}
    return {**told, "load": {**company, "stolen": neat(lost[0] / max(lost[1], 1e-9))}}


def main(arguments: Sequence[str]) -> int:
    chosen = parse(arguments)
    if chosen.list:
        print("\n".join(f"{name:<8}  {question}" for name, (_, question) in BENCHES.items()))
        return 0
    options = Options(
        rounds=chosen.rounds,
        kills=chosen.kills,
        requests=chosen.requests,
        seed=chosen.seed,
        backlog=chosen.backlog,
        agents=chosen.agents,
        lines=chosen.lines,
        listed=chosen.listed,
        repositories=chosen.repositories,
        minutes=chosen.minutes,
        sets=tuple(chosen.set),
    )
    every = [name for name in BENCHES if name != ALONE]
    names = every if chosen.name == "all" else [chosen.name]
    found = []
    for name in names:
        told = measure(name, options)
        found.append(told)
        print(json.dumps(told) if chosen.json else f"{table(told)}\n", flush=True)
    if chosen.name == "all":
        write(found, machine.describe())
    return 0 if all(told["ok"] for told in found) else 1


def end_in_order(number: int, _frame: object) -> None:
    """SIGTERM unwinds the stack, so that no child process outlives its benchmark."""
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end_in_order)
    try:
        sys.exit(main(sys.argv[1:]))
    except Wrong as wrong:
        sys.exit(f"bench: {wrong}")
