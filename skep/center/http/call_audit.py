"""The audit row of one call: who, from where, what, which object, before and after, outcome.

Run by centers, for every call that changes something. The row of a change is on disk before
its answer; a change whose row cannot be written is answered with that error. It never holds a
password, a token or the secret of a session.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.requests import Request

from skep.access.audit import AuditTrail
from skep.access.identity import Identity, Role
from skep.center.http.audited_state import read_state
from skep.center.http.endpoint import AuditNotes, Call, Endpoint
from skep.center.services import Services
from skep.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    NotFound,
    SkepError,
    TooManyTries,
    Unauthorized,
    Unavailable,
)
from skep.jobs.definitions.masked_jobs import MASKS
from skep.model.people.audit import (
    DETAIL_LIMIT,
    OBJECT_LIMIT,
    STATE_LIMIT,
    WHO_LIMIT,
    AuditOutcome,
    AuditRow,
)
from skep.runtime.masked_answers import masked
from skep.runtime.masking import mask_text

#: Path parameters that name an object, and its kind.
KINDS = {
    "run": "run",
    "identity": "run",
    "job": "job",
    "agent": "agent",
    "host": "host",
    "token_id": "token",
    "user": "user",
    "user_group": "group",
    "session": "session",
    "secret": "secret",
    "request": "request",
}
_REFUSALS = (Unauthorized, Forbidden, TooManyTries)
#: Errors that say that nothing was changed. Of a store that is not available, no row can be
#: awaited.
_UNCHANGED = (InvalidInput, NotFound, Conflict, Unavailable, *_REFUSALS)


class CallAudit:
    """Collects the row while the call is answered."""

    def __init__(self, services: Services, row: Endpoint, request: Request) -> None:
        self._services = services
        self._endpoint = row
        self._request = request
        self._caller = Identity(Role.PUBLIC)
        self._before: Any = None
        self._named = _object(request.path_params)
        #: What the handler says about the row.
        self.notes = AuditNotes(make=self._row)

    @property
    def _trail(self) -> AuditTrail:
        return self._services.people.audit

    def identified(self, who: Identity) -> None:
        """The caller is known; whether it may do this is not."""
        self._caller = who

    async def begin(self) -> None:
        """Read the state of the object before the change."""
        if self._endpoint.audits_state:
            self._before = await read_state(self._services, self._named)

    async def done(self, call: Call) -> None:
        """Write the row of a change. Raises StoreDown and DiskFull."""
        if self.notes.stored or _is_trial(call.body):
            return
        before, after = "", ""
        if self._endpoint.audits_state:
            now = await read_state(self._services, self._object)
            before, after = _difference(self._before, now)
            if self._before is None and now is None:
                after = _text(_shown(call.body))
        await self._trail.record(self._row(before=before, after=after))

    async def failed(self, error: Exception) -> None:
        """Write, or sum, a call that was refused or has failed; never raises a SkepError."""
        self.notes.stored = False
        known = error if isinstance(error, SkepError) else SkepError(type(error).__name__)
        outcome = AuditOutcome.REFUSED if isinstance(known, _REFUSALS) else AuditOutcome.FAILED
        detail = mask_text(f"{known.code}: {known.detail[:DETAIL_LIMIT]}")
        row = self._row(outcome=outcome, detail=detail)
        if isinstance(known, _UNCHANGED):
            self._trail.record_soon(row)
            return
        with contextlib.suppress(SkepError):  # the caller gets the first error
            await self._trail.record(row)

    @property
    def _object(self) -> str:
        return self.notes.object or self._named

    def _row(self, **more: Any) -> AuditRow:
        """The row as it is known now. The detail of a command is its verb."""
        caller, request = self._caller, self._request
        detail = more.pop("detail", "") or str(request.path_params.get("verb", ""))
        return AuditRow(
            at=self._services.clock.now(),
            who=_clean(self.notes.who or caller.who, WHO_LIMIT),
            action=self._endpoint.route.id,
            object=_clean(self._object, OBJECT_LIMIT),
            address=(request.client.host if request.client else "")[:64],
            client=_client(caller, request.headers),
            credential=caller.credential,
            detail=_clean(detail, DETAIL_LIMIT),
            center=self._trail.center,
            **more,
        )


def _object(path: Mapping[str, Any]) -> str:
    for name, value in path.items():
        if name in KINDS:
            return f"{KINDS[name]}:{value}"
    return ""


def _clean(text: str, limit: int) -> str:
    """Without characters that a database refuses or a terminal obeys."""
    return "".join(one if one.isprintable() else " " for one in text[:limit])


def _client(caller: Identity, headers: Mapping[str, str]) -> str:
    if caller.session:
        return "browser"
    if caller.role in {Role.AGENT, Role.JOIN}:
        return "agent"
    if caller.role is Role.DRIVER:
        return "spider"
    return "cli" if headers.get("user-agent", "").startswith("skep/") else "api"


def _is_trial(body: Any) -> bool:
    """A call that was asked to change nothing."""
    return bool(getattr(body, "dry_run", False) or getattr(body, "dry", False))


def _shown(value: Any) -> Any:
    """As plain data without secrets: by the rules of its type, then by the names of its fields."""
    return masked(msgspec.to_builtins(masked(value, MASKS), str_keys=True))


def _text(value: Any) -> str:
    if value is None:
        return ""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= STATE_LIMIT else f"{text[:STATE_LIMIT]}..."


def _difference(before: Any, after: Any) -> tuple[str, str]:
    """Both states as JSON; of two objects only the fields that differ."""
    old, new = _shown(before), _shown(after)
    if isinstance(old, dict) and isinstance(new, dict):
        same = {name for name in old if name in new and old[name] == new[name]}
        if len(same) == len(old) == len(new):
            return "", ""
        old = {name: value for name, value in old.items() if name not in same}
        new = {name: value for name, value in new.items() if name not in same}
    return _text(old), _text(new)
