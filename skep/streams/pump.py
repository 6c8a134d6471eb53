"""The path of an earlier release: `SinkWriter` of `sink_writer` was `SinkPump` here.

It works for one more release, with a warning. It holds nothing of its own.
"""

from __future__ import annotations

import warnings

from skep.streams import sink_writer

_RENAMED = {"SinkPump": "SinkWriter"}


def __getattr__(name: str) -> object:
    new = _RENAMED.get(name, name)
    found: object = getattr(sink_writer, new)
    words = f"{__name__}.{name} is now {sink_writer.__name__}.{new}"
    warnings.warn(words, DeprecationWarning, stacklevel=2)
    globals()[name] = found  # it warns once
    return found
