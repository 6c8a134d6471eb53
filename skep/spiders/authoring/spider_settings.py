"""The `settings` of a spider: those of its run and those of its own loop, checked together.

Runs in the spider's process before anything is sent. An unknown name is an error that
offers the nearest known one, since a misspelt limit would not limit anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from skep.errors import ConfigurationError
from skep.model.run import AskedSettings, RunSettings
from skep.runtime.value_errors import explained

Count = Annotated[int, Meta(ge=0)]


class SpiderOptions(msgspec.Struct, frozen=True):
    """How a spider's loop behaves. 0 means no limit."""

    #: Pages between the start and the deepest page that is asked for.
    depth_limit: Count = 0
    #: Number of items after which the run ends successfully.
    item_limit: Count = 0
    #: Number of pages after which the run ends successfully.
    page_limit: Count = 0
    #: Seconds for one call of a callback; a longer one ends the run.
    callback_seconds: Annotated[float, Meta(ge=0, le=86400)] = 30.0
    #: Callbacks that raise, after which the run ends.
    callback_error_limit: Count = 100
    #: Requests of `start` on their way, above which it is not asked for more.
    outstanding_limit: Annotated[int, Meta(ge=1)] = 100
    #: Seconds without any answer, while requests are on their way, after which the run fails.
    silence_seconds: Annotated[float, Meta(ge=0)] = 900.0
    #: Bytes of address space for the spider's process, when it has one of its own.
    memory_limit: Count = 4 * 2**30
    #: URLs remembered by the process, so that known links are not sent again.
    remembered_urls: Count = 200_000
    #: Blocks asked for in one call.
    read_blocks: Annotated[int, Meta(ge=1, le=64)] = 8
    #: Tries of one call to a center (open, read, checkpoint) before the run ends with an error.
    center_tries: Annotated[int, Meta(ge=1, le=1000)] = 10


def split_settings(
    settings: Mapping[str, Any], whose: str = "settings"
) -> tuple[RunSettings, SpiderOptions]:
    """The run's part and the loop's part; raises ConfigurationError that names the field."""
    run_fields = set(RunSettings.__struct_fields__)
    own_fields = set(SpiderOptions.__struct_fields__)
    for name in settings:
        if name not in run_fields | own_fields:
            raise ConfigurationError(f"{whose}: {_unknown(name, run_fields | own_fields)}")
    asked = {k: v for k, v in settings.items() if k in run_fields}
    return (
        _checked(msgspec.to_builtins(asked), AskedSettings, whose).checked(),
        _checked({k: v for k, v in settings.items() if k in own_fields}, SpiderOptions, whose),
    )


def _checked(fields: Mapping[str, Any], kind: type[Any], whose: str) -> Any:
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        text = explained(error, fields, kind)
        raise ConfigurationError(f"{whose}: {text}; see docs/reference/spiders.md") from error


def _unknown(name: str, known: set[str]) -> str:
    near = get_close_matches(str(name), known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "; see docs/reference/spiders.md"
    return f"there is no setting {name!r}{hint}"
