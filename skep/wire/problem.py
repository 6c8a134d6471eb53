"""Errors on the wire: `application/problem+json`, and back to the error tree by `code`.

Centers write it, agents and commands read it. A code never changes its meaning.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from skep import errors
from skep.errors import InvalidFilter, SkepError

PROBLEM = "application/problem+json"


class Problem(msgspec.Struct):
    """RFC 9457, with Skep's stable `code` and whether the same call can succeed later."""

    title: str = ""
    status: int = 500
    detail: str = ""
    code: str = ""
    retryable: bool = False
    type: str = "about:blank"
    #: The id of this case in the center's log.
    instance: str | msgspec.UnsetType = msgspec.UNSET
    #: Of a filter: where it is wrong, counted from 1, and how many characters are.
    column: int | msgspec.UnsetType = msgspec.UNSET
    length: int | msgspec.UnsetType = msgspec.UNSET


def problem_of(error: SkepError) -> Problem:
    """The problem of an error, as it is sent."""
    kind = f"urn:skep:problem:{error.code}"
    sent = Problem(error.title, error.status, error.detail, error.code, error.retryable, kind)
    if isinstance(error, InvalidFilter) and error.column:
        sent.column, sent.length = error.column, error.length
    return sent


def error_from(status: int, content_type: str, content: bytes) -> SkepError:
    """The error that a center (or a proxy in front of it) answered, as its class."""
    problem = _problem(status, content_type, content)
    kind = _by_code().get(problem.code) or _by_status(status, retryable=problem.retryable)
    error = kind(problem.detail or problem.title or _not_ours(status))
    if isinstance(error, InvalidFilter):
        error.column, error.length = problem.column or 0, problem.length or 0
    return error


def _not_ours(status: int) -> str:
    return (
        f"the answer was HTTP {status} and not from a Skep center; check the address of the "
        "center and any proxy in front of it"
    )


def _problem(status: int, content_type: str, content: bytes) -> Problem:
    if content_type.partition(";")[0].strip().lower() == PROBLEM:
        try:
            return msgspec.json.decode(content, type=Problem)
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
    return Problem(status=status)


def _by_code() -> dict[str, type[SkepError]]:
    # Without the root: `internal` adds nothing to its status.
    return {kind.code: kind for kind in _tree(SkepError) if kind is not SkepError}


def _tree(kind: type[SkepError]) -> Iterator[type[SkepError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _tree(below)


_STATUSES: dict[int, type[SkepError]] = {
    400: errors.InvalidInput,
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    413: errors.TooLarge,
    426: errors.OldProtocol,
    429: errors.Unavailable,
}


def _by_status(status: int, *, retryable: bool) -> type[SkepError]:
    """For answers without a code, such as those of a proxy."""
    if retryable or status >= 500:  # noqa: PLR2004  (a server error, by definition)
        return errors.Unavailable
    return _STATUSES.get(status, SkepError)
