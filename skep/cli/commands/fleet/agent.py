"""`skep agent`: leases work from a center, downloads and reports. It only connects outbound.

Subcommands: `token` runs at the center, `join` runs on a machine that becomes an agent.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import click

from skep.cli.terminal.center_calls import ask
from skep.cli.terminal.center_options import calls_center
from skep.cli.terminal.durations import SPAN
from skep.cli.terminal.exit_codes import ExitCode
from skep.cli.terminal.options import (
    ProcessOptions,
    dial_options,
    json_option,
    place_options,
    process_options,
)
from skep.cli.terminal.output import say, show, show_json
from skep.embed.center_address import CenterAddress
from skep.runtime.clock import SystemClock

if TYPE_CHECKING:
    from skep.cli.commands.fleet.agent_join import JoinCheck
    from skep.settings import Settings


@click.group("agent", invoke_without_command=True)
@dial_options
@process_options
@click.option("--name", help="Display name. Default: the host name.")
@click.option("--group", help="Group for placement.")
@click.option("--label", "labels", multiple=True, metavar="NAME=VALUE", help="A label; repeatable.")
@click.option(
    "--processes", type=click.IntRange(1, 256), help="Number of processes, each an agent."
)
@click.option("--concurrency", type=click.IntRange(1, 4096), help="Downloads at the same time.")
@click.pass_context
def command(
    context: click.Context,
    center: str | None,
    token_file: Path | None,
    process: ProcessOptions,
    name: str | None,
    group: str | None,
    labels: tuple[str, ...],
    processes: int | None,
    concurrency: int | None,
) -> int:
    """Start an agent that works for a center.

    The agent keeps its identity and unsent results in the data folder. On Ctrl-C or SIGTERM
    it finishes active downloads and returns the rest to the center; a second signal stops it
    immediately.
    """
    if context.invoked_subcommand is not None:
        context.obj = CenterAddress(center, token_file, process.data, process.config)
        return 0
    import uvloop

    from skep.cli.terminal.settings_options import split_pair
    from skep.embed.center_address import addresses, find_token
    from skep.errors import CenterUnreachable
    from skep.runtime.logging import start_logging

    flags = {
        "agent.name": name,
        "agent.group": group,
        "agent.processes": processes,
        "agent.concurrency": concurrency,
    }
    settings = process.settings(flags)
    start_logging(sys.stderr, logging.DEBUG if process.verbose else logging.INFO)
    folder = Path(settings.data)
    if not center and not (folder / "center.url").exists():
        raise CenterUnreachable(
            f"this machine has not joined a center ({folder} names none); create a token at the "
            "center with `skep agent token`, then run `skep agent join URL --token TOKEN` here, or "
            "give the address of the center with --center URL"
        )
    if settings.agent.processes > 1:
        return uvloop.run(_supervise(settings))
    urls = addresses(center, folder)
    token = find_token(token_file, folder / "agent.token")
    pairs = dict(split_pair(text, "--label") for text in labels)
    code, again = uvloop.run(_work(settings, urls, token, pairs))
    if again:
        # Run the same command again in this process, which loads an upgraded version from disk.
        os.execv(sys.executable, [sys.executable, "-m", "skep", *sys.argv[1:]])  # noqa: S606 - ourselves
    return code


async def _work(
    settings: Settings, urls: list[str], token: str, labels: Mapping[str, str]
) -> tuple[int, bool]:
    """(exit code, whether the center requested a restart)."""
    from skep.agent.launch import LaunchedAgent
    from skep.agent.process_signals import run_until_signalled
    from skep.logs.handler import every_logger, recorded
    from skep.runtime.garbage_collection import collect_less_often

    clock, rng = SystemClock(), Random()  # noqa: S311 - jitter and names, no secrets
    folder = Path(settings.data) / "agent"
    launched = LaunchedAgent(settings, urls, token, folder, labels, clock, rng)
    try:
        collect_less_often()
        with recorded(launched.agent.logs.put, every_logger):
            return await run_until_signalled(launched.agent), launched.agent.restarting
    finally:
        await launched.close()


async def _supervise(settings: Settings) -> int:
    from skep.agent.processes import supervise

    folder = Path(settings.data)

    def argv(number: int) -> list[str]:
        """The same command for one process, with its own folder and name."""
        place = folder / f"process-{number}"
        _name_child(folder, place, number)
        mine = ["--processes", "1", "--data", str(place)]
        if settings.agent.name:
            mine += ["--name", f"{settings.agent.name}-{number}"]
        return [sys.executable, "-m", "skep", *sys.argv[1:], *mine, *_place(folder)]

    return await supervise(argv, settings.agent.processes, SystemClock(), Random())  # noqa: S311


def _name_child(folder: Path, place: Path, number: int) -> None:
    """Give each process of a joined agent the id of the agent with its number; one credential
    is valid for all of them."""
    from skep.agent.agent_folder import read_agent_id
    from skep.runtime.files import write_durably

    known, mine = folder / "agent" / "agent-id", place / "agent" / "agent-id"
    if known.exists() and not mine.exists():
        mine.parent.mkdir(parents=True, exist_ok=True)
        write_durably(mine, f"{read_agent_id(known)}.{number}\n".encode())


def _place(folder: Path) -> list[str]:
    """Options for what a child would otherwise read from the data folder of its parent."""
    from skep.embed.center_address import addresses

    given = click.get_current_context().params
    found: list[str] = []
    if given["center"] is None and (folder / "center.url").exists():
        found += ["--center", ",".join(addresses(None, folder))]
    if given["token_file"] is None and (folder / "agent.token").exists():
        found += ["--token-file", str(folder / "agent.token")]
    return found


@command.command("token")
@click.option("--agent", default="", help="Id of the new agent, or of the agent to replace.")
@click.option("--group", default="", help="Group of the agent; overrides its own setting.")
@click.option("--label", "labels", multiple=True, metavar="NAME=VALUE", help="A label; repeatable.")
@click.option("--name", default="", help="A note that `skep token ls` shows.")
@click.option("--expires", type=SPAN, default="1h", help="Lifetime of the token. Default: 1h.")
@json_option
@calls_center
def token(
    reach: CenterAddress,
    agent: str,
    group: str,
    labels: tuple[str, ...],
    name: str,
    expires: float,
    as_json: bool,
) -> None:
    """Create a token with which one machine can join, once.

    Run this command at the center, with an admin token. The center stores only a digest.
    """
    from skep.cli.terminal.settings_options import split_pair
    from skep.wire.api.tokens import JoinToken

    pairs = dict(split_pair(text, "--label") for text in labels)
    join_token = JoinToken(agent, group, pairs, name, expires)
    answer = ask(reach, lambda api: api.tokens.create_join(join_token))
    if as_json:
        show_json(answer)
        return
    show(answer.token)
    if agent and answer.agent != agent:
        say(f"for agent {answer.agent}, which has the name {agent}")
    # Behind a proxy, other machines cannot use the local address of the center.
    address = reach.settings().center.public_url or ",".join(reach.urls())
    say(f"on the new machine: skep agent join {address} --token {answer.token}")


@command.command("join")
@click.argument("url")
@click.option(
    "--token", envvar="SKEP_JOIN_TOKEN", help="Token from `skep agent token`; valid once."
)
@click.option("--id", "wanted", default="", help="Id of the agent. Default: a new id.")
@click.option(
    "--try", "pages", multiple=True, metavar="URL", help="Download this page as a test; repeatable."
)
@click.option("--check", is_flag=True, help="Run the checks only; do not use the token.")
@click.option("--again", is_flag=True, help="Replace the credential of this folder.")
@json_option
@place_options
def join(
    url: str,
    token: str | None,
    wanted: str,
    pages: tuple[str, ...],
    check: bool,
    again: bool,
    as_json: bool,
    data: Path | None,
    config: Path | None,
) -> int:
    """Make this machine an agent of the center at URL.

    The command first checks the connection, TLS, version, clock, egress and token, and reports
    problems. Then it uses the token and stores a credential in the data folder, with which
    `skep agent` starts from then on. Separate several addresses with commas.
    """
    from skep.cli.terminal.settings_options import read_settings

    if not token:
        raise click.UsageError("--token is missing; create one with `skep agent token`")
    outer = click.get_current_context().find_object(CenterAddress)
    if outer is not None:
        data, config = data or outer.data, config or outer.config
    settings = read_settings(config, data)
    looks, joined = asyncio.run(_join(settings, url, token, wanted, pages, check, again))
    well = all(look.finding.ok for look in looks if look.needed)
    if as_json:
        show_json({"ok": well, "checks": looks, "joined": joined})
    else:
        _tell(looks, joined, Path(settings.data))
    return ExitCode.OK if well else ExitCode.FAILED


async def _join(
    settings: Settings,
    url: str,
    token: str,
    wanted: str,
    pages: tuple[str, ...],
    check: bool,
    again: bool,
) -> tuple[list[JoinCheck], Any]:
    from skep.cli.commands.fleet.agent_join import (
        Folder,
        JoinCheck,
        egress,
        fetched,
        look_at_all,
        use_token,
    )
    from skep.embed.center_address import addresses
    from skep.embed.checks.finding import Finding
    from skep.errors import SkepError

    folder = Folder(Path(settings.data))
    folder.check(again=again)
    urls = [each.rstrip("/") for each in addresses(url, folder.folder)]
    looks = await look_at_all(urls)
    looks += egress(settings)
    looks += [await fetched(settings, page) for page in pages]
    if not all(look.finding.ok for look in looks if look.needed):
        return looks, None
    agent, secret = folder.propose(wanted)
    try:
        await use_token(urls, token, agent, secret, dry=True)
    except SkepError as error:
        fix = "create a new token with `skep agent token` and try again"
        return [*looks, JoinCheck(Finding("token", False, error.detail, fix))], None
    looks.append(JoinCheck(Finding("token", True, f"valid for agent {agent}")))
    if check:
        return looks, None
    secret = folder.prepare(agent)
    joined = await use_token(urls, token, agent, secret, dry=False)
    folder.keep(urls)
    return looks, joined


def _tell(looks: list[JoinCheck], joined: Any, folder: Path) -> None:
    from skep.cli.commands.operate.doctor import line_of

    for look in looks:
        show(line_of(look.finding, warns=not look.needed))
    if joined is not None:
        group = f" in group {joined.grant.group}" if joined.grant.group else ""
        show(f"joined  as {joined.agent}{group}\nnext    `skep agent --data {folder}`")
