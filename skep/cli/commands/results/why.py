"""`skep why`: what something waits for, and what will free it.

A bare ID may name several things. The one that is told about is named first, and the others
are pointed at, so that nobody reads the wrong answer unawares.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from skep.cli.terminal.center_calls import connected
from skep.cli.terminal.center_options import calls_center
from skep.cli.terminal.latest_run import latest_run
from skep.cli.terminal.line_wrapping import wide_option
from skep.cli.terminal.options import json_option
from skep.cli.terminal.output import say, show, show_json
from skep.embed.center_address import CenterAddress

if TYPE_CHECKING:
    from skep.model.run import Run
    from skep.model.wait_reasons import Why
    from skep.wire.client import CenterClient

#: What a bare ID is taken for, in this order.
KINDS = ("request", "run", "job", "block", "site")


@click.command("why")
@click.argument("thing", metavar="ID")
@wide_option
@json_option
@calls_center
def command(reach: CenterAddress, thing: str, as_json: bool) -> None:
    """Say what a request, block, run, job or host waits for.

    ID is the number of a request, the name of a run, of a job or of a host, or one of
    request:N, block:N, run:NAME, job:NAME and site:HOST, which leave no doubt.
    """
    found = asyncio.run(_ask(reach, thing))
    for other in found[1:]:
        say(f"{thing} is also a {other.kind}: `skep why {other.kind}:{other.id}`")
    show_json(found[0]) if as_json else show(in_words(found[0]))


async def _ask(reach: CenterAddress, thing: str) -> list[Why]:
    """Everything of that name, the one that is meant first."""
    async with connected(reach) as client:
        named, _, rest = thing.partition(":")
        if rest and named in KINDS:
            return [await _why(client, named, rest)]
        return await _guess(client, thing)


async def _guess(client: CenterClient, thing: str) -> list[Why]:
    from skep.errors import NotFound

    found = [why for kind in _candidates(thing) if (why := await _if_there(client, kind, thing))]
    known = [why for why in found if why.reasons[0].code != "host_unknown"]
    if known:
        return known
    if run := await latest_run(client, thing):  # a spider's name, which no job has
        return [await _why(client, "run", run)]
    raise NotFound(
        f"there is no request, run, job or host {thing!r}; a block is named block:NUMBER"
    )


def _candidates(thing: str) -> tuple[str, ...]:
    """What it can be; a block is only meant when it is called one."""
    number = thing.isascii() and thing.isdecimal()
    return ("request", "run", "job") if number else ("run", "job", "site")


async def _if_there(client: CenterClient, kind: str, thing: str) -> Why | None:
    from skep.errors import InvalidInput, NotFound

    try:
        return await _why(client, kind, thing)
    except (NotFound, InvalidInput):
        return None


async def _why(client: CenterClient, kind: str, thing: str) -> Why:
    api = client.api.why
    if kind in {"request", "block"}:
        number = _number(kind, thing)
        return await (api.request(number) if kind == "request" else api.block(number))
    named = {"run": api.run, "job": api.job, "site": api.host}
    return await named[kind](thing)


def _number(kind: str, text: str) -> int:
    from skep.errors import InvalidInput

    if not (text.isascii() and text.isdecimal()):
        raise InvalidInput(f"{text!r} is not the number of a {kind}; write {kind}:NUMBER")
    return int(text)


def in_words(why: Why) -> str:
    """For people: the thing, then its reasons, each with what frees it and what to type."""
    of = f" of run {why.run}" if why.run and why.kind != "run" else ""
    title = f" ({why.title})" if why.title else ""
    lines = [f"{why.kind} {why.id}{of} is {why.state}{title}"]
    for number, reason in enumerate(why.reasons, 1):
        lines.append(f"{number:>2}. {reason.text}  [{reason.code}]")
        if reason.frees:
            lines.append(f"    frees it: {reason.frees}")
        lines += [f"    $ {command}" for command in reason.do]
    return "\n".join(lines)


async def waits_for(client: CenterClient, run: Run) -> str:
    """The first reason of a run that waits; "" for one that goes on or has ended."""
    if run.state in {"finished", "cancelled"}:
        return ""
    why = await _if_there(client, "run", run.id)
    if not why or not why.waiting or not why.reasons:
        return ""
    return " ".join(why.reasons[0].text.split())
