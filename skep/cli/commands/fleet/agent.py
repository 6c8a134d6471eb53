"""`skep agent`: leases work from a center, downloads it and reports. It only dials out.

Below it: `token`, on the center's side, and `join`, on a machine that wants to be an agent.
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
@click.option("--name", help="Name shown to people; the host's by default.")
@click.option("--group", help="Group for placement.")
@click.option("--label", "labels", multiple=True, metavar="NAME=VALUE", help="A label; repeatable.")
@click.option("--processes", type=click.IntRange(1, 256), help="Processes, each an agent.")
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

    It keeps its identity and its unsent results in the data folder. Ctrl-C or SIGTERM lets
    running downloads end and gives the rest back; a second one ends it at once.
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
            f"this machine has not joined a center ({folder} names none); make a token with "
            "`skep agent token` where the center is, then run `skep agent join URL --token TOKEN` "
            "here, or say where the center is with --center URL"
        )
    if settings.agent.processes > 1:
        return uvloop.run(_supervise(settings))
    urls = addresses(center, folder)
    token = find_token(token_file, folder / "agent.token")
    pairs = dict(split_pair(text, "--label") for text in labels)
    code, again = uvloop.run(_work(settings, urls, token, pairs))
    if again:
        # The same command in the same process: what was upgraded on disk is loaded now.
        os.execv(sys.executable, [sys.executable, "-m", "skep", *sys.argv[1:]])  # noqa: S606 - ourselves
    return code


async def _work(
    settings: Settings, urls: list[str], token: str, labels: Mapping[str, str]
) -> tuple[int, bool]:
    """(exit code, whether it was told to restart)."""
    from skep.agent.launch import LaunchedAgent
    from skep.agent.process_signals import run_until_signalled
    from skep.runtime.garbage_collection import collect_less_often

    clock, rng = SystemClock(), Random()  # noqa: S311 - jitter and names, no secrets
    folder = Path(settings.data) / "agent"
    launched = LaunchedAgent(settings, urls, token, folder, labels, clock, rng)
    try:
        collect_less_often()
        return await run_until_signalled(launched.agent), launched.agent.restarting
    finally:
        await launched.close()


async def _supervise(settings: Settings) -> int:
    from skep.agent.processes import supervise

    folder = Path(settings.data)

    def argv(number: int) -> list[str]:
        """The same command again, as one process with a folder and a name of its own."""
        place = folder / f"process-{number}"
        _name_child(folder, place, number)
        mine = ["--processes", "1", "--data", str(place)]
        if settings.agent.name:
            mine += ["--name", f"{settings.agent.name}-{number}"]
        return [sys.executable, "-m", "skep", *sys.argv[1:], *mine, *_place(folder)]

    return await supervise(argv, settings.agent.processes, SystemClock(), Random())  # noqa: S311


def _name_child(folder: Path, place: Path, number: int) -> None:
    """The processes of an agent that has joined go by its id and their number: one credential
    is good for all of them."""
    from skep.agent.agent_folder import read_agent_id
    from skep.runtime.files import write_durably

    known, mine = folder / "agent" / "agent-id", place / "agent" / "agent-id"
    if known.exists() and not mine.exists():
        mine.parent.mkdir(parents=True, exist_ok=True)
        write_durably(mine, f"{read_agent_id(known)}.{number}\n".encode())


def _place(folder: Path) -> list[str]:
    """What a child would look for in the data folder of its parent."""
    from skep.embed.center_address import addresses

    given = click.get_current_context().params
    found: list[str] = []
    if given["center"] is None and (folder / "center.url").exists():
        found += ["--center", ",".join(addresses(None, folder))]
    if given["token_file"] is None and (folder / "agent.token").exists():
        found += ["--token-file", str(folder / "agent.token")]
    return found


@command.command("token")
@click.option("--agent", default="", help="The id that it must have, or the agent to replace.")
@click.option("--group", default="", help="Its group, whatever it says itself.")
@click.option("--label", "labels", multiple=True, metavar="NAME=VALUE", help="A label; repeatable.")
@click.option("--name", default="", help="A note for people, shown by `skep token ls`.")
@click.option("--expires", type=SPAN, default="1h", help="Good for so long; 1h unless set.")
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
    """Make a token with which one machine can join, once.

    Run this where the center is, with an admin's token. Only a digest of it is kept.
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
    # Behind a proxy the address of this machine's own center is of no use elsewhere.
    address = reach.settings().center.public_url or ",".join(reach.urls())
    say(f"on the new machine: skep agent join {address} --token {answer.token}")


@command.command("join")
@click.argument("url")
@click.option("--token", envvar="SKEP_JOIN_TOKEN", help="From `skep agent token`; used once.")
@click.option("--id", "wanted", default="", help="The id to have; a new one unless set.")
@click.option(
    "--try", "pages", multiple=True, metavar="URL", help="Download this to see; repeatable."
)
@click.option("--check", is_flag=True, help="Only look; the token is not used.")
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

    It looks first (reach, TLS, version, clock, egress, token) and says what is wrong. Then it
    uses the token up and keeps a credential of its own in the data folder, with which
    `skep agent` starts from then on. Several addresses are given with commas.
    """
    from skep.cli.terminal.settings_options import read_settings

    if not token:
        raise click.UsageError("--token is missing; make one with `skep agent token`")
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
        fix = "make a new one with `skep agent token` and try again"
        return [*looks, JoinCheck(Finding("token", False, error.detail, fix))], None
    looks.append(JoinCheck(Finding("token", True, f"good for agent {agent}")))
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
