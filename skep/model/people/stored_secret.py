"""A secret in the store: its name, its use and its encrypted value. Pure data."""

from __future__ import annotations

from typing import Literal

import msgspec

#: Who may read a secret: applications as a variable, or the signatures of notices.
SecretUse = Literal["apps", "notices"]
#: What a secret may be called; the same as a file in DATA/secrets.
SECRET_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"  # noqa: S105 - a pattern
SECRET_BYTES = 65536
#: Secrets of one store.
SECRETS_LIMIT = 1000


class SecretRow(msgspec.Struct, frozen=True):
    """As it is stored; only a center with the key can read `sealed`."""

    name: str
    use: SecretUse
    #: Id of the key that sealed it.
    key: str
    sealed: bytes
    changed_at: float
    #: Who set it.
    changed_by: str = ""


class SecretView(msgspec.Struct, frozen=True):
    """A secret without its value."""

    #: What documents call it.
    name: str
    #: Who may read it: `apps` or `notices`.
    use: SecretUse
    #: Id of the key that encrypts it.
    key: str
    #: Time of the last change, in seconds since the epoch.
    changed_at: float
    #: Name of the user or token that set it.
    changed_by: str
    #: Whether this center has the key.
    readable: bool
