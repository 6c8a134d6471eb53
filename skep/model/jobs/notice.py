"""Notices: what is told to whom when a run ends or fails. Pure data.

Centers and the command line use it. Secrets are named here, and never held.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

#: Ends of a run that can be told.
EndWord = Literal["finished", "failed", "cancelled"]
#: A secret is named, never written down: a file of that name in the center's folder of secrets.
SecretName = Annotated[str, Meta(pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,63})?$(?!\n)")]


class NoticeRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One place that is told about ends of runs: a webhook or a mail address."""

    #: Address that takes a signed POST.
    webhook: Annotated[str, Meta(max_length=2000)] = ""
    #: Mail address, by the center's mail server.
    mail: Annotated[str, Meta(max_length=254)] = ""
    #: Which ends are told.
    on: tuple[EndWord, ...] = ("finished", "failed")
    #: Name of the secret that signs the webhook's calls; empty: the center's.
    secret: SecretName = ""


class RunEnding(msgspec.Struct, frozen=True):
    """A run came to an end, or failed."""

    id: int
    run: str
    state: str
    reason: str
    at: float


class Notice(msgspec.Struct, frozen=True):
    """One message to one place. Its id is the same however often it is sent."""

    id: str
    run: str
    job: str
    kind: str
    target: str
    secret: str
    body: bytes
    #: waiting, told or given up.
    state: str
    tries: int
    due_at: float
    created_at: float
    error: str = ""
