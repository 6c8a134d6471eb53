"""Small files that are replaced whole: positions of sinks, safe against any kill.

Used by file sinks and by pumps. A reader sees the old content or the new, never a part.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from skep.errors import ConfigurationError

T = TypeVar("T")


class Remembered(msgspec.Struct, frozen=True):
    """What a pump keeps for a sink that cannot keep it itself."""

    position: Annotated[int, Meta(ge=0)] = 0


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
    fresh = file.with_name(f"{file.name}.new")
    with fresh.open("wb") as out:
        out.write(msgspec.json.encode(state) + b"\n")
        out.flush()
        os.fsync(out.fileno())
    fresh.replace(file)
    sync_folder(file.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
