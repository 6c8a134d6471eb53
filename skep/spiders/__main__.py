"""`python -m skep.spiders FILE --run NAME`: one spider in a process of its own.

This is the process that loads user code, so its limits are set before the code is
imported. The center's token comes from a file or SKEP_TOKEN, never from an argument that
others could see; it is taken out of the environment before the spider's code can look.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from random import Random

import uvloop

from skep.errors import ConfigurationError, SkepError
from skep.runtime.clock import SystemClock
from skep.runtime.files import UnreadableFile, read_line
from skep.runtime.logging import start_logging
from skep.spiders.driving.assembly import drive_alone
from skep.spiders.driving.memory_limit import limit_memory
from skep.spiders.driving.stats import RESTART, UNREACHABLE, Ending
from skep.spiders.load import load_spider

#: As the command line has them: failed, must be changed, no center answers.
FAILED, USAGE, NO_CENTER = 1, 2, 6


def main(arguments: list[str] | None = None) -> int:
    """The exit code."""
    asked = _asked(arguments)
    start_logging(sys.stderr)
    try:
        urls, token = _center(asked)
        limit_memory(asked.memory * 2**20)
        spider = load_spider(asked.spider)(**_pairs(asked.argument))
        limit_memory(spider.options.memory_limit)
        ending = uvloop.run(
            drive_alone(
                spider,
                urls,
                token,
                asked.run or spider.name,
                SystemClock(),
                Random(),  # noqa: S311 - jitter
                kept=asked.kept,
            )
        )
    except SkepError as error:
        sys.stderr.write(f"{error.detail}\n")
        return USAGE
    code = _told(ending)
    if ending.reason == RESTART:
        _start_again(arguments, token)
    return code


def _start_again(arguments: list[str] | None, token: str) -> None:
    """The same command in the same process: the spider's code is loaded anew."""
    given = sys.argv[1:] if arguments is None else arguments
    sys.stderr.flush()
    environment = {**os.environ, "SKEP_TOKEN": token}
    os.execve(sys.executable, [sys.executable, "-m", "skep.spiders", *given], environment)  # noqa: S606 - no shell is wanted


def _told(ending: Ending) -> int:
    stats = ending.stats
    sys.stderr.write(
        f"{ending.reason}: {ending.sentence}\n"
        f"{stats.pages} pages, {stats.items} items, {stats.failed} failed, "
        f"{stats.callback_errors} callback errors, {stats.pages_per_second:.0f} pages/s\n"
    )
    if ending.good:
        return 0
    return NO_CENTER if ending.reason == UNREACHABLE else FAILED


def _asked(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m skep.spiders", description=__doc__)
    parser.add_argument("spider", help="file.py, file.py:Class or package.module:Class")
    parser.add_argument("--run", default="", help="name of the run; the spider's name if not given")
    parser.add_argument("-a", "--argument", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--center", default="", help="addresses of centers, with commas")
    parser.add_argument("--token-file", type=Path, help="file with a token that may operate runs")
    parser.add_argument("--data", type=Path, default=Path("skep-data"), help="a center's folder")
    parser.add_argument("--kept", action="store_true", help="a job keeps the run: leave, not pause")
    parser.add_argument("--memory", type=int, default=0, help="MB for this process; 0 = no limit")
    return parser.parse_args(arguments)


def _center(asked: argparse.Namespace) -> tuple[list[str], str]:
    secret = os.environ.pop("SKEP_TOKEN", "")
    address = asked.center or _read(asked.data / "center.url", "say where it is with --center")
    if asked.token_file or not secret:
        token_file = asked.token_file or asked.data / "admin.token"
        secret = _read(token_file, "name a file with --token-file")
    return [url for url in address.split(",") if url], secret


def _read(file: Path, instead: str) -> str:
    try:
        return read_line(file)
    except UnreadableFile as error:
        raise ConfigurationError(f"{error}; {instead}") from error


def _pairs(texts: list[str]) -> dict[str, str]:
    for text in texts:
        if "=" not in text:
            raise ConfigurationError(f"-a takes NAME=VALUE, not {text!r}")
    return {name: value for name, _, value in (text.partition("=") for text in texts)}


if __name__ == "__main__":
    sys.exit(main())
