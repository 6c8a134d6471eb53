"""User code that travels with a run: its source and what it may use. Pure data.

The version of code is the digest of its text: two runs with the same text have the same
version, and no caller can submit one text under the version of another.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b
from typing import Annotated

import msgspec
from msgspec import Meta

#: Maximum characters of source. It is sent to agents with the settings of its run.
SOURCE_LIMIT = 128 * 1024
_DIGEST_BYTES = 8


class Language(StrEnum):
    """Languages of user code that centers can check without running it."""

    PYTHON = "python"
    SHELL = "shell"


class CodeLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of each process of the code. The kernel enforces them."""

    #: Seconds for one request; None = the run's `time_limit`.
    time: Annotated[float, Meta(gt=0, le=86400)] | None = None
    #: Bytes of address space of one process.
    memory: Annotated[int, Meta(ge=32 * 2**20, le=2**40)] = 512 * 2**20
    #: Bytes of one result; None = the run's `body_limit`.
    output: Annotated[int, Meta(ge=0, le=2**30)] | None = None
    #: Bytes of the scratch folder, and of any file in it.
    scratch: Annotated[int, Meta(ge=2**20, le=2**36)] = 64 * 2**20
    #: Open files of one process.
    files: Annotated[int, Meta(ge=16, le=65536)] = 256
    #: Processes and threads, the one that runs the code included.
    processes: Annotated[int, Meta(ge=1, le=4096)] = 32


class Code(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A downloader written by a user: a Python module with `run`, or a shell script."""

    source: Annotated[str, Meta(min_length=1, max_length=SOURCE_LIMIT)]
    limits: CodeLimits = CodeLimits()
    #: Allow network access, under the egress rules of the agent; without it there is none.
    network: bool = False

    @property
    def version(self) -> str:
        """Digest that identifies this text."""
        return blake2b(self.source.encode(), digest_size=_DIGEST_BYTES).hexdigest()
