"""Stored secrets: types and routes. No answer contains a value."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from skep.model.people.stored_secret import SECRET_BYTES, SecretUse, SecretView
from skep.wire.api.caller import Resource
from skep.wire.api.route import Route


class NewSecret(msgspec.Struct, forbid_unknown_fields=True):
    """The value of a secret, and who may read it."""

    #: Text without NUL characters; it is never shown again.
    value: Annotated[str, Meta(min_length=1, max_length=SECRET_BYTES)]
    #: `apps`: variables of applications; `notices`: signatures of webhooks.
    use: SecretUse = "apps"


class Secrets(msgspec.Struct):
    """Sorted by name, without values."""

    items: list[SecretView]


class Rotation(msgspec.Struct, forbid_unknown_fields=True):
    """How to change the key."""

    #: Make a new key and put it before the others. Off = use the first key of the file, for
    #: several centers, whose files are changed by hand.
    make_key: bool = True


class Rotated(msgspec.Struct):
    """The id of the key that encrypts all secrets now, and how many were encrypted again."""

    #: Id of the key.
    key: str
    #: Number of secrets that were encrypted again.
    secrets: int


LIST_SECRETS = Route("list_secrets", "GET", "/api/v1/secrets", Secrets)
SET_SECRET = Route(
    "set_secret",
    "PUT",
    "/api/v1/secrets/{secret}",
    SecretView,
    takes=NewSecret,
    example={"value": "correct horse", "use": "notices"},
)
DELETE_SECRET = Route("delete_secret", "DELETE", "/api/v1/secrets/{secret}", SecretView)
ROTATE_SECRETS = Route(
    "rotate_secrets",
    "POST",
    "/api/v1/secret-rotations",
    Rotated,
    takes=Rotation,
    example={"make_key": True},
)


class SecretsClient(Resource):
    """Calls the routes of this file."""

    async def list(self) -> Secrets:
        """List stored secrets."""
        return await self._caller.call(LIST_SECRETS)

    async def set(self, secret: str, body: NewSecret) -> SecretView:
        """Store a secret."""
        return await self._caller.call(SET_SECRET, secret, body=body)

    async def remove(self, secret: str) -> SecretView:
        """Remove a stored secret."""
        return await self._caller.call(DELETE_SECRET, secret)

    async def rotate(self, body: Rotation) -> Rotated:
        """Change the key that encrypts secrets."""
        return await self._caller.call(ROTATE_SECRETS, body=body)
