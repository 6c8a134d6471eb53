"""Clear errors for command lines: the value, the allowed values, the most similar name.

click prints `'abc' is not a valid integer range` without the range. Imported only when a command
line is not valid. It never decides an exit code.
"""

from __future__ import annotations

import re

import click

from skep.cli.terminal.output import say
from skep.runtime.value_errors import choices

_NO_COMMAND = re.compile(r"No such command '(.*?)'\.")
_NUMBER = re.compile(r"'?(.*?)'? is not (?:a valid|in the range)")


def show_error(error: click.ClickException) -> None:
    """Print the usage line and the error, wrapped at the width of the terminal."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        say(f"{context.get_usage()}\nTry '{context.command_path} --help' for help.\n")
    say(f"Error: {sentence(error)}")


def sentence(error: click.ClickException) -> str:
    """The error with the allowed values."""
    if isinstance(error, click.NoSuchOption):
        return _no_option(error)
    if isinstance(error, click.MissingParameter) and error.param is not None:
        return _missing(error.param)
    if isinstance(error, click.BadParameter) and error.param is not None:
        return _bad_value(error, error.param)
    unknown = _NO_COMMAND.match(error.format_message())
    context = error.ctx if isinstance(error, click.UsageError) else None
    if unknown and context is not None and isinstance(context.command, click.Group):
        known = context.command.list_commands(context)
        return (
            f"'{context.command_path}' has no command {unknown[1]!r}; {choices(unknown[1], known)}"
        )
    return error.format_message()


def _bad_value(error: click.BadParameter, param: click.Parameter) -> str:
    name = _name(param)
    given = _NUMBER.match(error.message)
    if given and isinstance(param.type, click.IntRange | click.FloatRange):
        return f"{name} is {given[1]!r}; it must be {_range(param.type)}"
    if isinstance(param.type, click.Choice):
        value = error.message.partition(" is not")[0]
        return f"{name} is {value}; it must be one of {', '.join(map(str, param.type.choices))}"
    return error.format_message()


def _missing(param: click.Parameter) -> str:
    described = getattr(param, "help", None) or ""
    allowed = f": {described}" if described else ""
    if isinstance(param.type, click.Choice):
        allowed = f"; it must be one of {', '.join(map(str, param.type.choices))}"
    return f"{_name(param)} is missing{allowed}"


def _name(param: click.Parameter) -> str:
    if isinstance(param, click.Option):
        return param.opts[-1]
    return (param.metavar or str(param.name)).upper()


def _range(kind: click.IntRange | click.FloatRange) -> str:
    words = ["a whole number" if isinstance(kind, click.IntRange) else "a number"]
    if kind.min is not None:
        words.append(f"{'more than' if kind.min_open else 'at least'} {kind.min}")
    if kind.max is not None:
        words.append(f"{'less than' if kind.max_open else 'at most'} {kind.max}")
    return ", ".join(words)


def _no_option(error: click.NoSuchOption) -> str:
    """Suggests similar options, or settings of that name if the command accepts settings."""
    unknown = f"there is no option {error.option_name!r}"
    params = error.ctx.command.params if error.ctx else []
    if any(one.name == "chosen" for one in params) and (names := _settings(error.option_name)):
        return f"{unknown}; set it with --set {names[0]}=VALUE ({', '.join(names)})"
    if error.possibilities:
        return f"{unknown}; did you mean {' or '.join(error.possibilities)}?"
    own = [name for one in params if isinstance(one, click.Option) for name in one.opts[-1:]]
    return f"{unknown}; the options are {', '.join(own)}" if own else unknown


def _settings(option: str) -> list[str]:
    """Settings whose room or field is the typed word: `--store` means store.url."""
    from skep.settings import documented

    word = option.lstrip("-").replace("-", "_")
    return [
        f"{room}.{field}"
        for room, field, *_ in documented()
        if word in {room, field, f"{room}_{field}", f"{room}.{field}"}
    ]
