"""Options that many commands share, each written once: which center, which settings.

Run by every command when it is loaded: nothing heavy may be imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from skep.settings import Settings

Function = TypeVar("Function", bound=Callable[..., Any])

#: In the context of a command: answers are kept as they came (`center_calls.py`).
KEEP_ANSWERS = "skep.cli.keep_answers"


def _print_json(context: click.Context, _option: object, value: bool) -> bool:
    if value:
        context.meta[KEEP_ANSWERS] = True
    return value


json_option = click.option(
    "--json",
    "as_json",
    is_flag=True,
    callback=_print_json,
    help="Print JSON, for programs, instead of text.",
)
_data = click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for everything that Skep keeps; `skep-data` unless SKEP_DATA says otherwise.",
)
_config = click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="TOML file with settings.",
)
_center = click.option(
    "--center",
    metavar="URL",
    envvar="SKEP_CENTER",
    help="Address of the center, several with commas; else the one of the data folder. "
    "Also SKEP_CENTER.",
)
_token_file = click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="SKEP_TOKEN_FILE",
    help="File that holds the token; else the one of the data folder. Also SKEP_TOKEN_FILE.",
)
_set = click.option(
    "--set",
    "chosen",
    multiple=True,
    metavar="ROOM.FIELD=VALUE",
    help="Any setting of docs/reference/settings.md; may be given several times.",
)
_verbose = click.option("-v", "--verbose", is_flag=True, help="Log more.")


def stacked(*options: Callable[[Function], Function]) -> Callable[[Function], Function]:
    """Several options as one decorator, shown in the order in which they stand."""

    def decorate(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """What a program that works on its own settings is given."""

    data: Path | None
    config: Path | None
    chosen: tuple[str, ...]
    verbose: bool

    def settings(self, flags: Mapping[str, Any] | None = None) -> Settings:
        """With `flags` over everything else."""
        from skep.cli.terminal.settings_options import read_settings

        return read_settings(self.config, self.data, self.chosen, flags)


def process_options(function: Function) -> Function:
    """For programs with settings of their own; handed over together as `process`."""

    def gathered(*args: Any, **given: Any) -> Any:
        own = {name: given.pop(name) for name in ProcessOptions.__slots__}
        return function(*args, process=ProcessOptions(**own), **given)

    # update_wrapper carries over the options that stand below this decorator.
    update_wrapper(gathered, function)
    return stacked(_data, _config, _set, _verbose)(gathered)  # type: ignore[return-value]  # the same but for its options


#: For programs that dial a center: `center`, `token_file`.
dial_options = stacked(_center, _token_file)
#: For programs that only ask: where a center may have left its address.
place_options = stacked(_data, _config)
#: For programs that listen: `host`, `port`.
bind_options = stacked(
    click.option("--host", help="Address to bind; 127.0.0.1 unless set otherwise."),
    click.option(
        "--port", type=click.IntRange(0, 65535), help="Port to bind, 8420 by default; 0 is any."
    ),
)
