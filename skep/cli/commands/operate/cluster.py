"""`skep cluster`: runs several centers with their servers on this machine, for testing.

The processes are started by a program of `skep.testing`, which replaces this one: commands import
nothing from there (docs/decisions/0022-cluster-is-a-program.md).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from skep.cli.terminal.options import json_option

PROGRAM = "skep.testing.cluster"


@click.group("cluster")
def command() -> None:
    """Run several centers on this machine, for testing."""


@command.command("dev")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("skep-cluster"),
    show_default=True,
    help="Data folder; an existing folder continues with its data.",
)
@click.option(
    "--centers", type=click.IntRange(1, 16), default=2, help="Number of centers. Default: 2."
)
@click.option(
    "--agents", type=click.IntRange(0, 64), default=2, help="Number of agents. Default: 2."
)
@click.option("--mysql", is_flag=True, help="MariaDB in place of PostgreSQL.")
@json_option
def dev(folder: Path, centers: int, agents: int, mysql: bool, as_json: bool) -> None:
    """Start PostgreSQL, Redis, centers and agents, until Ctrl-C.

    The servers come from binaries of this machine (Debian: postgresql, redis-server,
    mariadb-server) and listen on free ports of loopback, without passwords: for one
    developer's machine, never for a network. It prints addresses, the place of the admin
    token and commands to try. Processes that end are restarted. Settings of the environment
    (SKEP_...) apply to its centers and agents.
    """
    words = ["--folder", str(folder), "--centers", str(centers), "--agents", str(agents)]
    words += ["--mysql"] * mysql + ["--json"] * as_json
    os.execv(sys.executable, [sys.executable, "-m", PROGRAM, *words])  # noqa: S606 - ourselves
