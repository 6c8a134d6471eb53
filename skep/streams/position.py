"""Small files that are replaced whole: positions of sinks, safe against any kill.

Used by file sinks and by pumps. A reader sees the old content or the new, never a part.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from skep.errors import ConfigurationError
from skep.runtime.files import write_durably

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
    write_durably(file, msgspec.json.encode(state) + b"\n")
