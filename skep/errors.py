"""The one error tree, for every process. On the wire an error is problem+json.

    SkepError
    ├── InvalidInput            400  the caller must change its input
    │   ├── NotAUrl             400
    │   ├── UnknownScheme       400
    │   ├── Malformed           400
    │   ├── TooLarge            413
    │   ├── UrlTooLong          414
    │   ├── HeadTooLarge        431
    │   ├── TooSlow             408
    │   ├── WrongMethod         405
    │   ├── OldProtocol         426
    │   ├── InvalidJob          400  each line of the detail is a path and its problem
    │   ├── InvalidPipeline     400  each line of the detail is a path and its problem
    │   └── InvalidFilter       400  with the column of the problem
    ├── Unauthorized            401  no token, or an unknown token
    │   └── Revoked             401  the token was valid and has been revoked
    ├── Forbidden               403  the token does not allow this call
    ├── TooManyTries            429  too many wrong tokens from this address; wait
    ├── TooManyStreams          429  too many event streams; close some
    ├── NotFound                404
    │   ├── UnknownRun          404
    │   ├── UnknownAgent        404
    │   ├── UnknownJob          404
    │   └── UnknownBlock        404
    ├── Conflict                409
    │   ├── StaleToken          409  the block was leased to another agent since
    │   ├── LostLease           409  another center supervises the run now
    │   └── Fenced              409  another process runs as this agent now
    ├── Unavailable             503  nothing was changed; retry
    │   ├── StoreDown           503
    │   ├── BusDown             503
    │   ├── ArchiveDown         503
    │   ├── DiskFull            507
    │   ├── TooManyConnections  503
    │   ├── CenterStopping      503  this center shuts down; call it later or call another one
    │   └── DiskFailed          503  read-only or broken; the detail gives the reason
    ├── StoreDamaged            500  the database's files are damaged
    ├── ArchiveDamaged          500  an archived record is damaged
    ├── NotEnoughAgents         409  too few agents are online; the run did not start
    ├── CenterUnreachable        -   raised by clients, never sent
    └── ConfigurationError       -   this process cannot start as configured

`code` is stable and never reused; `retryable` says whether the same call can succeed
later without changes. A message says what is wrong and what to do.
"""

from __future__ import annotations

from typing import ClassVar


class SkepError(Exception):
    """Base class of all errors that Skep raises on purpose."""

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False
    title: ClassVar[str] = "Internal error"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class InvalidInput(SkepError):
    code = "invalid_input"
    status = 400
    title = "The input is not valid"


class NotAUrl(InvalidInput):
    code = "not_a_url"
    title = "Not a URL"


class UnknownScheme(InvalidInput):
    code = "unknown_scheme"
    title = "No downloader for this scheme"


class Malformed(InvalidInput):
    code = "malformed"
    title = "The body could not be parsed"


class TooLarge(InvalidInput):
    code = "too_large"
    status = 413
    title = "The body exceeds the limit"


class UrlTooLong(InvalidInput):
    code = "url_too_long"
    status = 414
    title = "The URL exceeds the limit"


class HeadTooLarge(InvalidInput):
    code = "head_too_large"
    status = 431
    title = "The headers exceed the limit"


class TooSlow(InvalidInput):
    code = "too_slow"
    status = 408
    title = "The request took too long to arrive"


class WrongMethod(InvalidInput):
    code = "method_not_allowed"
    status = 405
    title = "Method not allowed"


class OldProtocol(InvalidInput):
    code = "old_protocol"
    status = 426
    title = "The protocol version is not supported"


class InvalidJob(InvalidInput):
    code = "invalid_job"
    title = "The document is not a valid job"


class InvalidPipeline(InvalidInput):
    code = "invalid_pipeline"
    title = "The document is not a valid pipeline"


class InvalidFilter(InvalidInput):
    """`column` counts characters from 1; `length` of them are wrong. 0 = not known."""

    code = "invalid_filter"
    title = "The filter is not valid"

    def __init__(self, detail: str, column: int = 0, length: int = 0) -> None:
        super().__init__(detail)
        self.column = column
        self.length = length


class Unauthorized(SkepError):
    code = "unauthorized"
    status = 401
    title = "A valid token is required"


class Revoked(Unauthorized):
    code = "revoked"
    title = "The token was revoked"


class Forbidden(SkepError):
    code = "forbidden"
    status = 403
    title = "The token does not allow this"


class TooManyTries(SkepError):
    code = "too_many_tries"
    status = 429
    title = "Too many wrong tokens"


class TooManyStreams(SkepError):
    code = "too_many_streams"
    status = 429
    title = "Too many event streams"


class NotFound(SkepError):
    code = "not_found"
    status = 404
    title = "Not found"


class UnknownRun(NotFound):
    code = "unknown_run"
    title = "No such run"


class UnknownAgent(NotFound):
    code = "unknown_agent"
    title = "No such agent"


class UnknownJob(NotFound):
    code = "unknown_job"
    title = "No such job"


class UnknownBlock(NotFound):
    code = "unknown_block"
    title = "No such block"


class Conflict(SkepError):
    code = "conflict"
    status = 409
    title = "The call conflicts with the current state"


class StaleToken(Conflict):
    code = "stale_token"
    title = "The lease is no longer valid"


class LostLease(Conflict):
    code = "lost_lease"
    title = "Another center holds the lease"


class Fenced(Conflict):
    code = "fenced"
    title = "Another process runs as this agent"


class Unavailable(SkepError):
    code = "unavailable"
    status = 503
    retryable = True
    title = "Temporarily unavailable"


class StoreDown(Unavailable):
    code = "store_down"
    title = "The store does not answer"


class BusDown(Unavailable):
    code = "bus_down"
    title = "The bus does not answer"


class ArchiveDown(Unavailable):
    code = "archive_down"
    title = "The archive is not available"


class DiskFull(Unavailable):
    code = "disk_full"
    status = 507
    title = "The disk is full"


class TooManyConnections(Unavailable):
    code = "too_many_connections"
    title = "The connection limit is reached"


class CenterStopping(Unavailable):
    code = "center_stopping"
    title = "The center is shutting down"


class DiskFailed(Unavailable):
    code = "disk_failed"
    title = "The disk cannot be written to"


class StoreDamaged(SkepError):
    code = "store_damaged"
    title = "The store is damaged"


class ArchiveDamaged(SkepError):
    code = "archive_damaged"
    title = "An archived record is damaged"


class NotEnoughAgents(SkepError):
    code = "not_enough_agents"
    status = 409
    title = "Too few agents are online"


class CenterUnreachable(SkepError):
    code = "center_unreachable"
    retryable = True
    title = "No center answers"


class ConfigurationError(SkepError):
    code = "configuration"
    title = "The configuration is not valid"
