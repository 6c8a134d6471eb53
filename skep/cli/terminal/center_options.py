"""Finds the center that a command calls, and the token.

Flags have precedence, then the environment, then the files in the data folder of a center. It
never writes anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import update_wrapper
from typing import Any

import click

from skep.cli.terminal.latest_run import latest_run_at
from skep.cli.terminal.line_wrapping import wide_option
from skep.cli.terminal.options import (
    Function,
    dial_options,
    json_option,
    place_options,
    stacked,
)
from skep.cli.terminal.output import say
from skep.cli.terminal.program_name import remember_place
from skep.cli.terminal.short_ids import full_names, is_short
from skep.embed.center_address import CenterAddress
from skep.errors import CenterUnreachable, UnknownRun

#: Command parameter that contains an id: the kind of the id.
_IDS = {"run": "run", "run_or_job": "run", "thing": "run", "resume": "run", "agent": "agent"}
#: Commands that add to a run: they do not accept the name of a job in place of a run.
_FILLS_RUNS = {"submit"}
COMMANDLINE = click.core.ParameterSource.COMMANDLINE


def calls_center(function: Function) -> Function:
    """Add the options that find a center; the command receives them together as `reach`.

    A subcommand accepts these options before and after its name; the later one wins.
    """

    def gathered(*args: Any, **given: Any) -> Any:
        own = CenterAddress(**{name: given.pop(name) for name in CenterAddress.__slots__})
        reach = _with_outer(own)
        remember_place(_typed(reach))
        given = _with_known_names(reach, _with_full_ids(reach, given))
        return _with_latest_run(function, args, reach, given)

    # update_wrapper copies the options of the decorators below this one.
    update_wrapper(gathered, function)
    return stacked(dial_options, place_options)(gathered)  # type: ignore[return-value]  # only the options differ


def center_group(name: str) -> Callable[[Callable[[], None]], click.Group]:
    """A group whose commands call a center; its options may also precede the subcommand."""

    def decorate(function: Callable[[], None]) -> click.Group:
        @click.group(name, help=function.__doc__)
        @calls_center
        @click.pass_context
        def group(context: click.Context, reach: CenterAddress) -> None:
            context.obj = reach

        return group

    return decorate


def listing_group(
    name: str, show_list: Callable[[CenterAddress, bool], None]
) -> Callable[[Callable[[], None]], click.Group]:
    """Like `center_group`; without a subcommand it calls `show_list(reach, as_json)`."""

    def decorate(function: Callable[[], None]) -> click.Group:
        @click.group(name, help=function.__doc__, invoke_without_command=True)
        @wide_option
        @json_option
        @calls_center
        @click.pass_context
        def group(context: click.Context, reach: CenterAddress, as_json: bool) -> None:
            context.obj = reach
            if context.invoked_subcommand is None:
                show_list(reach, as_json)

        return group

    return decorate


def _with_latest_run(
    function: Function, args: tuple[Any, ...], reach: CenterAddress, given: dict[str, Any]
) -> Any:
    """Call the command; if no run has the name, try the latest run of the job of that name."""
    try:
        return function(*args, reach=reach, **given)
    except CenterUnreachable as error:
        raise CenterUnreachable(_with_advice(error.detail)) from error
    except UnknownRun:
        name = given.get("run")
        if not isinstance(name, str):
            raise
        if click.get_current_context().info_name in _FILLS_RUNS:
            problem = f"there is no run {name!r}; use --new to open it; `skep runs` lists runs"
            raise UnknownRun(problem) from None
    import asyncio

    found = asyncio.run(latest_run_at(reach, name))
    if not found:
        from skep.cli.terminal.name_options import no_run

        raise UnknownRun(no_run(name))
    say(f"{found} is the latest run of {name}")
    return function(*args, reach=reach, **{**given, "run": found})


def _with_known_names(reach: CenterAddress, given: dict[str, Any]) -> dict[str, Any]:
    """Check that the values of `--run` and `--job` exist; raise an error otherwise."""
    options = [
        one.name
        for one in click.get_current_context().command.params
        if isinstance(one, click.Option) and one.name in {"run", "job"} and given.get(one.name)
    ]
    if not options:
        return given
    import asyncio

    from skep.cli.terminal.name_options import checked

    try:
        named = asyncio.run(checked(reach, {str(name): given[str(name)] for name in options}))
    except CenterUnreachable as error:
        raise CenterUnreachable(_with_advice(error.detail)) from error
    return {**given, **named}


def _with_advice(text: str) -> str:
    """Add what to do if no center answers; other texts are returned unchanged."""
    if not text.startswith("no center answers at "):
        return text
    return (
        f"{text}; start it with `skep up`, or give its address with --center URL, such as "
        "http://127.0.0.1:8420"
    )


def _with_full_ids(reach: CenterAddress, given: dict[str, Any]) -> dict[str, Any]:
    """Replace short ids, as tables show them, with the full ids."""
    short = [
        (name, kind)
        for name, kind in _IDS.items()
        if isinstance(given.get(name), str) and is_short(given[name].removeprefix("run:"))
    ]
    if not short:
        return given
    import asyncio

    asked = [(kind, given[name].removeprefix("run:")) for name, kind in short]
    found = asyncio.run(full_names(reach, asked))
    return {**given, **{name: full for (name, _), full in zip(short, found, strict=True)}}


def _typed(reach: CenterAddress) -> list[str]:
    """The options that were typed; values from the environment are left out."""
    words: list[str] = []
    for name in CenterAddress.__slots__:
        if getattr(reach, name) is not None and _was_typed(name):
            words += [f"--{name.replace('_', '-')}", str(getattr(reach, name))]
    return words


def _was_typed(name: str) -> bool:
    """Whether the option was given to this command or to a parent command."""
    context: click.Context | None = click.get_current_context()
    while context is not None:
        if context.get_parameter_source(name) is COMMANDLINE:
            return True
        context = context.parent
    return False


def _with_outer(own: CenterAddress) -> CenterAddress:
    context = click.get_current_context()
    outer = context.find_object(CenterAddress)
    if outer is None:
        return own
    typed = [
        name
        for name in CenterAddress.__slots__
        if context.get_parameter_source(name) is COMMANDLINE
    ]
    return replace(outer, **{name: getattr(own, name) for name in typed})
