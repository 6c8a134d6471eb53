"""A request as spider code makes it: cheap, because one page yields dozens of them.

Runs in the spider's process. A callback is kept by its name, never as code, so that a run
can be continued by another process; what has no name that the spider knows is refused at
once, where the mistake is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any
from urllib.parse import urlencode

import msgspec

from skep.errors import InvalidInput, NotAUrl

HIGHEST, LOWEST = -1, 5
DEFAULT_CALLBACK = "parse"
DEFAULT_ERRBACK = "failed"

Callback = Callable[..., Any] | str | None


class Request:
    """What to download next, and who looks at it.

    `callback` and `errback` are methods of the spider or their names. `meta` and `kwargs`
    are plain data and come back with the response; `kwargs` are handed to the callback.
    `priority` is -1 (first) to 5 (last). `again` asks for a URL that the run has had
    before; `expires_in` is the number of seconds after which it is not wanted any more.
    `session` names the identity (cookies, proxy, headers) that it belongs to; without a name
    it gets one of the run's.
    """

    __slots__ = (
        "again",
        "body",
        "callback",
        "depth",
        "errback",
        "expires_in",
        "follow",
        "headers",
        "kwargs",
        "meta",
        "method",
        "priority",
        "session",
        "url",
    )

    def __init__(
        self,
        url: str,
        callback: Callback = None,
        *,
        errback: Callback = None,
        method: str = "",
        headers: Mapping[str, str] | None = None,
        body: bytes | str = b"",
        json: Any = None,
        form: Mapping[str, Any] | None = None,
        meta: Mapping[str, Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        priority: int | None = None,
        again: bool = False,
        expires_in: float | None = None,
        session: str = "",
    ) -> None:
        if "://" not in url:
            raise NotAUrl(
                f"{url[:200]!r} is not a whole URL; write it as scheme://host/path "
                "(response.follow() takes parts of one)"
            )
        self.url = url
        self.callback = callback_name(callback)
        self.errback = callback_name(errback)
        self.method = method.upper() if method else "GET"
        self.headers = dict(headers) if headers else {}
        self.body = body.encode() if isinstance(body, str) else body
        self.meta = dict(meta) if meta else {}
        self.kwargs = dict(kwargs) if kwargs else {}
        self.priority = priority
        self.again = again
        self.expires_in = expires_in
        self.session = session
        #: Pages between the start and this one; set by the engine.
        self.depth = 0
        #: Whether the spider's rules look at the page too; set by the engine.
        self.follow = False
        if priority is not None and not HIGHEST <= priority <= LOWEST:
            raise InvalidInput(f"priority {priority} is not from {HIGHEST} to {LOWEST}")
        if json is not None or form is not None:
            self._fill(json, form, method)

    def _fill(self, json: Any, form: Mapping[str, Any] | None, method: str) -> None:
        if self.body or (json is not None and form is not None):
            raise InvalidInput("a request has one of body, json and form, not several")
        if json is not None:
            self.body = msgspec.json.encode(json)
            kind = "application/json"
        else:
            self.body = urlencode(form or {}, doseq=True).encode()
            kind = "application/x-www-form-urlencoded"
        if not any(name.lower() == "content-type" for name in self.headers):
            self.headers["Content-Type"] = kind
        self.method = method.upper() if method else "POST"

    def replace(self, **changes: Any) -> Request:
        """The same request with some fields changed: `request.replace(again=True)`."""
        fields = {name: getattr(self, name) for name in _ARGUMENTS}
        new = Request(**{**fields, **changes})
        new.depth, new.follow = self.depth, self.follow
        return new

    @property
    def is_plain(self) -> bool:
        """A GET without body that the run wants once: its URL says everything."""
        return self.method == "GET" and not self.body and not self.again and not self.session

    def __repr__(self) -> str:
        return f"<Request {self.method} {self.url} -> {self.callback or DEFAULT_CALLBACK}>"


_ARGUMENTS = tuple(name for name in Request.__slots__ if name not in {"depth", "follow"})


def plain_request(url: str, callback: str) -> Request:
    """`Request(url, callback)` for a URL and a name that are known to be good."""
    request = Request.__new__(Request)
    request.url = url
    request.callback = callback
    request.errback = ""
    request.method = "GET"
    request.headers = {}
    request.body = b""
    request.meta = {}
    request.kwargs = {}
    request.priority = None
    request.again = False
    request.expires_in = None
    request.session = ""
    request.depth = 0
    request.follow = False
    return request


def callback_name(callback: Callback) -> str:
    """The name under which the spider has it; "" stands for the default."""
    if callback is None:
        return ""
    if isinstance(callback, str):
        return callback
    if type(callback) is MethodType:
        name = callback.__name__
        if getattr(callback.__self__, name, None) == callback:
            return name
    shown = getattr(callback, "__qualname__", type(callback).__name__)
    raise InvalidInput(
        f"a callback must be a method of the spider (self.parse) or its name ('parse'), not "
        f"{shown}: it is kept by name, so that another process can go on with the run"
    )
