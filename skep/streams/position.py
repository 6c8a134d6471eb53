"""Positions of sinks: where a pump keeps them, and small files that are replaced whole.

A center keeps positions in its store, `skep run` in a file beside the run. A reader of a file
sees the old content or the new, never a part.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar

import msgspec
from msgspec import Meta

from skep.errors import ConfigurationError, Unavailable
from skep.runtime.files import write_durably

T = TypeVar("T")


class Positions(Protocol):
    """Where a pump keeps the position of one sink."""

    async def load(self) -> int:
        """The last position that was saved, 0 when none was."""

    async def save(self, position: int) -> None:
        """Durable when it returns; raises Unavailable when a later try may succeed."""


class Remembered(msgspec.Struct, frozen=True):
    """What a pump keeps for a sink that cannot keep it itself."""

    position: Annotated[int, Meta(ge=0)] = 0


class PositionFile:
    """A position in a file of its own."""

    def __init__(self, file: Path) -> None:
        self._file = file

    async def load(self) -> int:
        known = await asyncio.to_thread(read_state, self._file, Remembered)
        return known.position if known else 0

    async def save(self, position: int) -> None:
        try:
            await asyncio.to_thread(replace_state, self._file, Remembered(position))
        except OSError as error:
            raise Unavailable(
                f"cannot store the position in {self._file}: {error.strerror}"
            ) from error


def read_state(file: Path, kind: type[T]) -> T | None:
    """None when there is no file; raises ConfigurationError when it is not ours."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{file} is not a position of a sink ({error}); move it away to start from the first."
        ) from error


def replace_state(file: Path, state: Any) -> None:
    """On disk when it returns; raises OSError and leaves what was there."""
    write_durably(file, msgspec.json.encode(state) + b"\n")
