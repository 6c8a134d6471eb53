"""Notices: messages about the end or failure of a run. Pure data.

Used by centers and the command line. It holds names of secrets, never secrets.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

#: Ends of a run that can cause a notice.
EndWord = Literal["finished", "failed", "cancelled"]
#: The name of a secret: a file in the center's folder of secrets.
SecretName = Annotated[str, Meta(pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,63})?$(?!\n)")]


class NoticeRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One recipient of notices: a webhook or a mail address."""

    #: URL that receives a signed POST.
    webhook: Annotated[str, Meta(max_length=2000)] = ""
    #: Mail address; the center's mail server sends it.
    mail: Annotated[str, Meta(max_length=254)] = ""
    #: Ends that cause a notice.
    on: tuple[EndWord, ...] = ("finished", "failed")
    #: Name of the secret that signs the webhook's calls; empty = the center's secret.
    secret: SecretName = ""


class RunEnding(msgspec.Struct, frozen=True):
    """A run that ended or failed."""

    id: int
    run: str
    state: str
    reason: str
    at: float


class Notice(msgspec.Struct, frozen=True):
    """One message to one recipient. Its id stays the same when it is sent again."""

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
