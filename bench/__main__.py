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

#: Name -> (module with `run`, what it asks). In the order of the page.
BENCHES: dict[str, tuple[str, str]] = {
    "enqueue": ("bench.enqueue", "how fast are requests accepted for good?"),
    "drain": ("bench.drain", "how fast are blocks leased and acknowledged, all of it durable?"),
    "fetch": ("bench.fetch", "how much CPU does a downloaded page cost?"),
    "crawl": ("bench.crawl", "how fast is a site crawled, beside Scrapy?"),
    "jobs": ("bench.jobs", "how fast is user code run, boxed, beside job queues?"),
    "backlog": ("bench.backlog", "is it as quick with ten million waiting requests as with ten?"),
    "kill": ("bench.kill.bench", "is anything lost when processes are killed with -9?"),
    "survive": ("bench.survive.bench", "does a crawl survive the death of its processes?"),
    "failover": ("bench.failover", "does any call fail when centers are killed in turn?"),
    "polite": ("bench.polite", "is a host ever asked more often than its rule allows?"),
    "fleet": ("bench.fleet", "how soon is a heartbeat answered among a thousand agents?"),
    "capacity": ("bench.capacity", "how many centers does a larger fleet need? (simulated)"),
    "logs": ("bench.logs", "how fast are log lines taken, and how soon is a word found?"),
    "start": ("bench.start", "how soon does it answer, and how large is it at rest?"),
    "soak": ("bench.soak.bench", "does it grow when it works for long? (not part of `all`)"),
}
#: It takes as long as one likes, and says more the longer it takes.
ALONE = "soak"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("name", nargs="?", default="all", choices=[*BENCHES, "all"])
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--list", action="store_true", help="name the benches")
    default = Options()
    parser.add_argument("--rounds", type=int, default=default.rounds, help="at least three")
    parser.add_argument("--kills", type=int, default=default.kills, help="for kill, per set-up")
    parser.add_argument("--requests", type=int, default=default.requests, help="for kill")
    parser.add_argument("--seed", type=int, default=default.seed, help="for kill")
    parser.add_argument("--backlog", type=int, default=default.backlog, help="for backlog")
    parser.add_argument("--agents", type=int, default=default.agents, help="for fleet")
    parser.add_argument("--lines", type=int, default=default.lines, help="for logs, to search")
    parser.add_argument(
        "--minutes", type=float, default=default.minutes, help="for soak; ten or more"
    )
    parser.add_argument(
        "--set", action="append", default=[], help="one set-up (kill, soak) or database (backlog)"
    )
    chosen = parser.parse_args(arguments)
    if chosen.rounds < 3:
        parser.error("fewer than three rounds say nothing")
    return chosen


def measure(name: str, options: Options) -> dict[str, Any]:
    """Run one bench; with it goes how busy the machine was."""
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
    """SIGTERM unwinds the stack, so that no child process outlives its bench."""
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end_in_order)
    try:
        sys.exit(main(sys.argv[1:]))
    except Wrong as wrong:
        sys.exit(f"bench: {wrong}")
