"""Options that several commands share: the center to call, settings, output as JSON.

Every command imports this module, so it must not import anything heavy.
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

#: Key in the context of a command: keep answers as the center sent them (`center_calls.py`).
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
    help="Print JSON instead of text.",
)
_data = click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    help="Data folder of Skep. Default: SKEP_DATA, or `skep-data`.",
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
    help="Address of the center; separate several with commas. Default: SKEP_CENTER, or the "
    "center of the data folder.",
)
_token_file = click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="SKEP_TOKEN_FILE",
    help="File with the token. Default: SKEP_TOKEN_FILE, or the token in the data folder.",
)
_set = click.option(
    "--set",
    "chosen",
    multiple=True,
    metavar="ROOM.FIELD=VALUE",
    help="A setting from docs/reference/settings.md; repeatable.",
)
_verbose = click.option("-v", "--verbose", is_flag=True, help="Log more details.")


def stacked(*options: Callable[[Function], Function]) -> Callable[[Function], Function]:
    """Combine several options into one decorator; the help shows them in this order."""

    def decorate(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """Options of a command that reads its own settings."""

    data: Path | None
    config: Path | None
    chosen: tuple[str, ...]
    verbose: bool

    def settings(self, flags: Mapping[str, Any] | None = None) -> Settings:
        """Read the settings; `flags` have precedence."""
        from skep.cli.terminal.settings_options import read_settings

        return read_settings(self.config, self.data, self.chosen, flags)


def process_options(function: Function) -> Function:
    """Options for commands that read their own settings, passed together as `process`."""

    def gathered(*args: Any, **given: Any) -> Any:
        own = {name: given.pop(name) for name in ProcessOptions.__slots__}
        return function(*args, process=ProcessOptions(**own), **given)

    # update_wrapper copies the options of the decorators below this one.
    update_wrapper(gathered, function)
    return stacked(_data, _config, _set, _verbose)(gathered)  # type: ignore[return-value]  # only the options differ


#: For commands that connect to a center: `center`, `token_file`.
dial_options = stacked(_center, _token_file)
#: For commands that call a center: the folder or file where its address is found.
place_options = stacked(_data, _config)
#: For commands that listen: `host`, `port`.
bind_options = stacked(
    click.option("--host", help="Address to bind. Default: 127.0.0.1."),
    click.option(
        "--port",
        type=click.IntRange(0, 65535),
        help="Port to bind; 0 selects a free port. Default: 8420.",
    ),
)
