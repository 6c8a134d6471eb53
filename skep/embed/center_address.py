"""Finds the center, and the token for it.

Options come first, then the files of a center in its data folder. It never writes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from skep.center.data_folder import copied_from
from skep.errors import CenterUnreachable, ConfigurationError
from skep.runtime.clock import SystemClock
from skep.runtime.files import UnreadableFile, read_line
from skep.settings import load

if TYPE_CHECKING:
    from skep.settings import Settings
    from skep.wire.client import CenterClient
    from skep.wire.client.answers_as_sent import Listener


@dataclass(frozen=True, slots=True)
class CenterAddress:
    """The options for the center; the rest is determined on demand."""

    center: str | None
    token_file: Path | None
    data: Path | None
    config: Path | None

    def settings(self) -> Settings:
        given = {} if self.data is None else {"data": str(self.data)}
        return load(self.config, os.environ, given)

    def urls(self) -> list[str]:
        """Raises CenterUnreachable when no address is known."""
        return addresses(self.center, Path(self.settings().data))

    def token(self, name: str = "admin.token") -> str:
        """Raises ConfigurationError for a given file that cannot be read."""
        return find_token(self.token_file, Path(self.settings().data) / name)

    def client(self, listener: Listener | None = None) -> CenterClient:
        """`listener` gets each answer of the public API."""
        from skep.wire.client import CenterClient

        rng = Random()  # noqa: S311 - jitter
        return CenterClient(self.urls(), self.token(), SystemClock(), rng, listener)


def addresses(given: str | None, folder: Path) -> list[str]:
    """Every address of the center."""
    if given:
        return [_address(url) for url in given.split(",") if url]
    kept = folder / "center.url"
    if not kept.exists():
        raise CenterUnreachable(
            f"there is no center in {folder}; start one with `skep up`, or set its address "
            "with --center URL"
        )
    if original := copied_from(folder):
        raise CenterUnreachable(
            f"{folder} is a copy of {original}, and no center runs in the copy; start one with "
            f"`skep up --data {folder}`, or use the original with --data {original}"
        )
    try:
        return read_line(kept).split(",")
    except UnreadableFile as error:
        raise ConfigurationError(
            f"{error}; start the center again, or set its address with --center URL"
        ) from error


def _address(text: str) -> str:
    """The address as a URL; raises ConfigurationError if it is not valid."""
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        if parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0:
            return url
    except ValueError:  # a port that is not a number, or over 65535
        pass
    raise ConfigurationError(
        f"--center: {text!r} is not a valid center address; write it as http://HOST:PORT or "
        "https://HOST, such as http://127.0.0.1:8420"
    )


def find_token(named: Path | None, kept: Path) -> str:
    """The token in the given file, else the stored one; "" when there is none."""
    from skep.center.http.authentication import read_token

    if named is None and not kept.exists():
        return ""
    return read_token(named or kept)
