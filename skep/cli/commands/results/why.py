"""`skep why`: explains what an object waits for, and the next step.

An ID without a kind may match several objects. The output names the explained object first and
lists the commands for the others, so that the answer cannot be misread.
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

#: Kinds that are tried for an ID without a kind, in this order.
KINDS = ("request", "run", "job", "block", "site")


@click.command("why")
@click.argument("thing", metavar="ID")
@wide_option
@json_option
@calls_center
def command(reach: CenterAddress, thing: str, as_json: bool) -> None:
    """Explain what a request, block, run, job or host waits for.

    ID is the number of a request, or the name of a run, job or host. To state the kind, write
    request:N, block:N, run:NAME, job:NAME or site:HOST.
    """
    found = asyncio.run(_ask(reach, thing))
    for other in found[1:]:
        say(f"{thing} is also a {other.kind}: `skep why {other.kind}:{other.id}`")
    show_json(found[0]) if as_json else show(in_words(found[0]))


async def _ask(reach: CenterAddress, thing: str) -> list[Why]:
    """All objects of that name, the most likely one first."""
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
    if run := await latest_run(client, thing):  # the name of a spider without a job
        return [await _why(client, "run", run)]
    raise NotFound(
        f"there is no request, run, job or host {thing!r}; write block:NUMBER for a block"
    )


def _candidates(thing: str) -> tuple[str, ...]:
    """The kinds that it can be; a block must be written as block:NUMBER."""
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
    """The object as text, then its reasons, each with the next step and commands."""
    of = f" of run {why.run}" if why.run and why.kind != "run" else ""
    title = f" ({why.title})" if why.title else ""
    lines = [f"{why.kind} {why.id}{of} is {why.state}{title}"]
    for number, reason in enumerate(why.reasons, 1):
        lines.append(f"{number:>2}. {reason.text}  [{reason.code}]")
        if reason.frees:
            lines.append(f"    next step: {reason.frees}")
        lines += [f"    $ {command}" for command in reason.do]
    return "\n".join(lines)


async def waits_for(client: CenterClient, run: Run) -> str:
    """The first reason why a run waits; "" if it is active or has ended."""
    if run.state in {"finished", "cancelled"}:
        return ""
    why = await _if_there(client, "run", run.id)
    if not why or not why.waiting or not why.reasons:
        return ""
    return " ".join(why.reasons[0].text.split())
