"""What travels with a request and comes back with its page: the `meta` of the wire.

Runs in the spider's process. Only what differs from the defaults is written, since it is
stored once per request; it is plain data and never code.
"""

from __future__ import annotations

from typing import Any

from skep.model.request import NewRequest
from skep.spiders.authoring.request import Request, plain_request
from skep.spiders.ports import Page

#: Field of `Request` -> its key on the wire.
_KEYS = {
    "callback": "c",
    "errback": "e",
    "kwargs": "k",
    "meta": "m",
    "depth": "d",
    "follow": "f",
    "headers": "h",
    "session": "s",
}
_METHOD = "v"


def sealed(request: Request, place: tuple[int | str, int] = ("", 0)) -> NewRequest:
    """A spider's request as the center takes it.

    `place` says where it was yielded. It distinguishes requests with `again` for the
    same URL; sent twice, after a broken connection, such a request counts once.
    """
    meta: dict[str, Any] = {}
    if request.callback:
        meta["c"] = request.callback
    if request.depth:
        meta["d"] = request.depth
    if request.follow:
        meta["f"] = True
    if request.errback:
        meta["e"] = request.errback
    if request.kwargs:
        meta["k"] = request.kwargs
    if request.meta:
        meta["m"] = request.meta
    if request.is_plain and not request.headers and request.priority is None:
        return NewRequest(request.url, meta=meta, expires_in=request.expires_in)
    return _whole(request, meta, place)


def _whole(request: Request, meta: dict[str, Any], place: tuple[int | str, int]) -> NewRequest:
    """With everything that a callback needs to send the same request again."""
    if request.method != "GET":
        meta[_METHOD] = request.method
    if request.headers:
        meta["h"] = request.headers
    if request.session:
        meta["s"] = request.session
    if request.body:
        # Latin-1 keeps every byte, and the center keeps meta as JSON.
        meta["b"] = request.body.decode("latin-1")
    return NewRequest(
        request.url,
        request.method,
        request.headers,
        request.body,
        request.priority,
        meta,
        f"again {place[0]}.{place[1]} {request.url}" if request.again and place[0] else "",
        request.expires_in,
        request.again and not place[0],
        request.session,
    )


def opened(page: Page) -> Request:
    """The request that led to a page, as the spider had made it."""
    request = plain_request(page.uri, "")
    meta = page.meta
    for name, key in _KEYS.items():
        if key in meta:
            setattr(request, name, meta[key])
    if body := meta.get("b"):
        request.body = body.encode("latin-1", "replace")
    request.method = meta.get(_METHOD, "GET")
    return request
