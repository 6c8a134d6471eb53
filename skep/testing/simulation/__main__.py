"""`python -m skep.testing.simulation [--seed S] [--seeds N]`: one JSON line per seed.

It ends at the first seed whose ledger does not add up, with exit code 1 and the reason.
"""

from __future__ import annotations

import argparse
import sys

from skep.testing.simulation.scenario import LedgerBroken, as_json, simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m skep.testing.simulation")
    parser.add_argument("--seed", type=int, default=1, help="first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds to run")
    options = parser.parse_args()
    for seed in range(options.seed, options.seed + options.seeds):
        try:
            sys.stdout.buffer.write(as_json(simulate(seed)) + b"\n")
        except LedgerBroken as broken:
            sys.stderr.write(f"{broken}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
