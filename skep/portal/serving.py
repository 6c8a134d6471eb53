"""Answers calls of pages: identity, forms, errors, headers. Run by centers.

Every page goes through here, so no page can forget a check: a changing call must come from a page
of this portal, and every answer has the headers that keep other sites out.
"""

from __future__ import annotations

import gzip
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random
from urllib.parse import parse_qs, quote, unquote

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from skep.errors import InvalidInput, SkepError, TooLarge, Unauthorized
from skep.portal.identity import api_of
from skep.portal.page import Data, Done, Foreign, Outcome, Page, PageCall, Redirect, View
from skep.portal.preferences import Preferences
from skep.portal.rendering import render
from skep.portal.safe_paths import safe_path
from skep.portal.same_origin import check_same_origin
from skep.portal.texts import texts_of
from skep.runtime.clock import Clock
from skep.runtime.ids import new_id

log = logging.getLogger(__name__)

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; worker-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-src 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
    "vary": "Accept-Encoding, Accept-Language, Cookie",
}
#: For collected documents: no scripts, an opaque origin, nothing from the network, no forms.
FOREIGN_POLICY = (
    "sandbox; default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
FOREIGN_HEADERS = {
    **HEADERS,
    "content-security-policy": FOREIGN_POLICY,
    "referrer-policy": "no-referrer",
    "x-dns-prefetch-control": "off",
    "cross-origin-resource-policy": "same-origin",
}
#: Sent by the modules of the portal: answer for them, not for a new page.
FRAGMENT = "x-skep-fragment"
NOTICE_COOKIE = "skep_notice"
FORM_LIMIT = 2 * 2**20
FIELDS_LIMIT = 5000
#: Smaller answers are sent as they are.
_COMPRESS_FROM = 1400
_HTML, _JSON = "text/html; charset=utf-8", "application/json"
Answer = Callable[[Request], Awaitable[Response]]


class Serving:
    """What all pages share; `pages` is the registry."""

    def __init__(self, pages: Sequence[Page], clock: Clock, rng: Random) -> None:
        self._pages = pages
        self._clock = clock
        self._rng = rng

    def answer(self, page: Page) -> Answer:
        """The function that a route calls."""

        async def answered(request: Request) -> Response:
            try:
                return await self._answer(page, request)
            except ClientDisconnect:
                return Response(status_code=499)

        return answered

    async def _answer(self, page: Page, request: Request) -> Response:
        call = self._call(request)
        try:
            outcome = await self._outcome(page, call)
        except Unauthorized as error:
            if page.public:
                outcome = self._failed(error)
            elif _is_fragment(request):
                outcome = Data({"login": True, "text": error.detail}, 401)
            else:
                outcome = Redirect(_login_path(call))
        except SkepError as error:
            outcome = self._failed(error)
        except Exception as error:  # noqa: BLE001 - a bug must not look like a lost connection
            outcome = self._failed(self._unexpected(request, error))
        return self._response(outcome, page, call)

    def _call(self, request: Request) -> PageCall:
        heard: dict[str, str] = {}
        accepts = request.headers.get("accept-language", "")
        preferences = Preferences.of(request.cookies, accepts)
        texts = texts_of(preferences.language)
        api = api_of(request, heard)
        return PageCall(request, api, texts, preferences, None, self._clock, self._rng, {}, heard)

    async def _outcome(self, page: Page, call: PageCall) -> Outcome:
        if call.request.method not in {"GET", "HEAD"}:
            check_same_origin(call.request.headers)
            call.form = await _form(call.request)
        if not page.public:
            call.me = await call.api.login.me()
        return await page.show(call)

    def _failed(self, error: SkepError) -> View:
        return View("pages/error.html", {"error": error}, status=error.status)

    def _unexpected(self, request: Request, cause: Exception) -> SkepError:
        name = new_id("bug", self._clock.now(), self._rng)
        log.error("%s: %s %s", name, request.method, request.url.path, exc_info=cause)
        return SkepError(f"this is a bug in Skep; find {name} in the center's log")

    def _response(self, outcome: Outcome, page: Page, call: PageCall) -> Response:
        if isinstance(outcome, Done):
            return _done(outcome, call)
        if isinstance(outcome, Redirect):
            return _redirect(outcome, call)
        if isinstance(outcome, Foreign):
            return Response(outcome.content, 200, FOREIGN_HEADERS, media_type=outcome.content_type)
        if isinstance(outcome, Data):
            content = msgspec.json.encode(outcome.value)
            return _made(call, content, _JSON, outcome.status)
        if _is_fragment(call.request) and "error" in outcome.data and call.form:
            error: SkepError = outcome.data["error"]
            data = {"text": error.detail, "error": error.code}
            return _made(call, msgspec.json.encode(data), _JSON, error.status)
        notice = unquote(call.request.cookies.get(NOTICE_COOKIE, ""))
        html = render(outcome, page, call, self._pages, notice)
        response = _made(call, html.encode("utf-8", "replace"), _HTML, outcome.status)
        if notice:
            response.headers.append("set-cookie", _notice_cookie("", call))
        return response


def _login_path(call: PageCall) -> str:
    root = call.request.scope.get("root_path", "")
    path = call.request.url.path.removeprefix(root) or "/"
    query = call.request.url.query
    back = f"{path}?{query}" if query else path
    return f"/login?next={quote(back, safe='')}" if call.request.method == "GET" else "/login"


def _is_fragment(request: Request) -> bool:
    return FRAGMENT in request.headers


def _done(outcome: Done, call: PageCall) -> Response:
    """For a module: what to say and where to go. For a browser without scripts: go there."""
    path = safe_path(outcome.path)
    if _is_fragment(call.request):
        root = call.request.scope.get("root_path", "")
        content = msgspec.json.encode({"text": outcome.text, "url": f"{root}{path}"})
        return _made(call, content, _JSON, 200)
    cookie = _notice_cookie(outcome.text, call)
    return _redirect(Redirect(path, {"set-cookie": cookie}), call)


def _redirect(outcome: Redirect, call: PageCall) -> Response:
    root = call.request.scope.get("root_path", "")
    headers = {**HEADERS, "location": f"{root}{safe_path(outcome.path)}", **outcome.headers}
    return Response(None, 303, headers)


def _notice_cookie(text: str, call: PageCall) -> str:
    """Says what was done on the next page; an empty text removes it."""
    path = call.request.scope.get("root_path", "") or "/"
    seconds = 30 if text else 0
    value = quote(text[:300], safe="")
    return f"{NOTICE_COOKIE}={value}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Lax"


def _made(call: PageCall, content: bytes, kind: str, status: int) -> Response:
    headers = dict(HEADERS)
    accepts = call.request.headers.get("accept-encoding", "")
    if len(content) >= _COMPRESS_FROM and "gzip" in accepts:
        content, headers["content-encoding"] = gzip.compress(content, 5, mtime=0), "gzip"
    return Response(content, status, headers, media_type=kind)


async def _form(request: Request) -> Mapping[str, list[str]]:
    """The fields of a form; raises InvalidInput and TooLarge."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in {"application/x-www-form-urlencoded", ""}:
        raise InvalidInput(f"a form cannot be sent as {kind[:100]!r}")
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > FORM_LIMIT:
            raise TooLarge(f"the form exceeds {FORM_LIMIT} bytes")
        parts.append(part)
    try:
        text = b"".join(parts).decode("utf-8")
        return parse_qs(text, keep_blank_values=True, max_num_fields=FIELDS_LIMIT, errors="strict")
    except ValueError as error:
        raise InvalidInput("the form cannot be read") from error
