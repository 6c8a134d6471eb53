"""Stored secrets: set, list, remove them, and change their key. Run by centers, for admins.

Values only come in. No answer, log line or audit row contains one.
"""

from __future__ import annotations

import re
from typing import Any

from skep.center.http.authentication import Role
from skep.center.http.endpoint import Call, Endpoint
from skep.errors import ConfigurationError, Conflict, InvalidInput, NotFound
from skep.model.people.stored_secret import SECRET_BYTES, SECRET_NAME, SecretView
from skep.wire.api.people.secrets import (
    DELETE_SECRET,
    LIST_SECRETS,
    ROTATE_SECRETS,
    SET_SECRET,
    NewSecret,
    Rotated,
    Rotation,
    Secrets,
)

SECRET_NAMES: dict[str, Any] = {"secret": {"type": "string", "pattern": SECRET_NAME}}


async def list_secrets(call: Call) -> Secrets:
    """Names, uses and keys."""
    return Secrets(await call.services.people.secrets.list())


async def set_secret(call: Call) -> SecretView:
    """Store a secret; one of this name is replaced."""
    asked: NewSecret = call.body
    value = asked.value.encode()
    if len(value) > SECRET_BYTES or b"\0" in value:
        raise InvalidInput(f"a secret is text of at most {SECRET_BYTES} bytes without NUL")
    secrets = call.services.people.secrets
    return await secrets.set(_name(call), asked.use, value, call.who.who)


async def delete_secret(call: Call) -> SecretView:
    """Remove a stored secret; files in DATA/secrets are not touched."""
    return await call.services.people.secrets.remove(_name(call))


async def rotate_secrets(call: Call) -> Rotated:
    """Encrypt all secrets with another key; they stay readable meanwhile."""
    asked: Rotation = call.body
    key, count = await call.services.people.secrets.rotate(make_key=asked.make_key)
    return Rotated(key, count)


def _name(call: Call) -> str:
    name: str = call.path["secret"]
    if not re.fullmatch(SECRET_NAME.removesuffix("$"), name):
        raise InvalidInput(
            f"{name[:110]!r} is not a valid name of a secret; use 1 to 100 letters, digits, `.`,"
            " `_` and `-`, the first one a letter or digit"
        )
    return name


def _row(route: Any, handler: Any, summary: str, *errors: Any) -> Endpoint:
    named = "{secret}" in route.path
    return Endpoint(
        route,
        Role.ADMIN,
        handler,
        summary,
        errors=errors,
        tag="secrets",
        parameters=SECRET_NAMES if named else {},
    )


ENDPOINTS = (
    _row(LIST_SECRETS, list_secrets, "List stored secrets, without values"),
    _row(SET_SECRET, set_secret, "Store a secret", InvalidInput, Conflict, ConfigurationError),
    _row(DELETE_SECRET, delete_secret, "Remove a stored secret", InvalidInput, NotFound),
    _row(ROTATE_SECRETS, rotate_secrets, "Change the key of secrets", ConfigurationError),
)
