"""Which center a command talks to, and with which token.

Flags first, then the environment, then what a center left in its data folder. It never
writes anything.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import update_wrapper
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from skep.cli.config import read_settings
from skep.cli.options import Function, dial_options, place_options, stacked
from skep.errors import CenterUnreachable, ConfigurationError
from skep.runtime.clock import SystemClock
from skep.runtime.files import UnreadableFile, read_line

if TYPE_CHECKING:
    from skep.settings import Settings
    from skep.wire.client import CenterClient

COMMANDLINE = click.core.ParameterSource.COMMANDLINE


@dataclass(frozen=True, slots=True)
class Reach:
    """What the command line said about the center; the rest is found when it is needed."""

    center: str | None
    token_file: Path | None
    data: Path | None
    config: Path | None

    def settings(self) -> Settings:
        return read_settings(self.config, self.data)

    def urls(self) -> list[str]:
        """Raises CenterUnreachable when nothing says where the center is."""
        return addresses(self.center, Path(self.settings().data))

    def token(self, name: str = "admin.token") -> str:
        """Raises ConfigurationError for a file that was named and cannot be read."""
        return find_token(self.token_file, Path(self.settings().data) / name)

    def client(self) -> CenterClient:
        from skep.wire.client import CenterClient

        return CenterClient(self.urls(), self.token(), SystemClock(), Random())  # noqa: S311 - jitter


def addresses(given: str | None, folder: Path) -> list[str]:
    """Every address of the center."""
    if given:
        return [url if "://" in url else f"http://{url}" for url in given.split(",") if url]
    kept = folder / "center.url"
    if not kept.exists():
        raise CenterUnreachable(
            f"there is no center in {folder}; start one with `skep up`, or say where it is "
            "with --center URL"
        )
    try:
        return read_line(kept).split(",")
    except UnreadableFile as error:
        raise ConfigurationError(
            f"{error}; start the center again, or say where it is with --center URL"
        ) from error


def run_path(run: str, verb: str = "") -> str:
    """The API's path of a run, or of something that can be done to it."""
    return f"/api/v1/runs/{quote(run, safe='')}" + (f"/{verb}" if verb else "")


def find_token(named: Path | None, kept: Path) -> str:
    """The token of the file that was named, else the kept one; "" when there is none."""
    from skep.center.auth import read_token

    if named is None and not kept.exists():
        return ""
    return read_token(named or kept)


def reaches_center(function: Function) -> Function:
    """Adds the options that find a center, handed over together as `reach`.

    A command below another takes what was said at either place; the nearer one wins.
    """

    def gathered(*args: Any, **given: Any) -> Any:
        own = Reach(**{name: given.pop(name) for name in Reach.__slots__})
        return function(*args, reach=_with_outer(own), **given)

    # update_wrapper carries over the options that stand below this decorator.
    update_wrapper(gathered, function)
    return stacked(dial_options, place_options)(gathered)  # type: ignore[return-value]  # the same but for its options


def _with_outer(own: Reach) -> Reach:
    context = click.get_current_context()
    outer = context.find_object(Reach)
    if outer is None:
        return own
    said = [name for name in Reach.__slots__ if context.get_parameter_source(name) is COMMANDLINE]
    return replace(outer, **{name: getattr(own, name) for name in said})
