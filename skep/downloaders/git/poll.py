"""Asks a server for the refs of a repository, without fetching anything. Runs on an event loop.

Over HTTPS it sends one `ls-refs` request of protocol version 2 through the HTTP engine, which
checks each address it connects to. `git ls-remote` is used for other protocols, and for servers
that speak the smart protocol in an older version only. Redirects are reported, never followed. The
answer is bounded in bytes, refs and time.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from skep.archive.frames import Exchange
from skep.downloaders.egress_policy import EgressPolicy
from skep.downloaders.git.pinned import pin
from skep.downloaders.git.program import GitFailed, GitProgram
from skep.downloaders.git.refs import (
    MOST_REFS,
    PREFIXES,
    BadAnswer,
    Refs,
    TooManyRefs,
    ls_refs,
    parse_listing,
    parse_ls_refs,
)
from skep.downloaders.git.remote import GitRemote
from skep.downloaders.http import HttpKind
from skep.downloaders.ports import Fetched
from skep.errors import InvalidInput
from skep.model.failures.failure_class import FailureClass
from skep.model.poll_failure import PollFailureKind
from skep.model.request import Work
from skep.model.run import RunSettings

SECONDS = 30.0
MOST_BYTES = 64 * 2**20
SERVICE = "git-upload-pack"
_ASKED = f"application/x-{SERVICE}-request"
_RESULT = f"application/x-{SERVICE}-result"
_ADVERTISEMENT = f"application/x-{SERVICE}-advertisement"
_OK, _FIRST_REDIRECT, _FIRST_ERROR = 200, 300, 400
#: Statuses that say something about the repository; 429 and 5xx say something about the server.
_MEANINGS: dict[int, PollFailureKind] = {
    401: "refused",
    403: "refused",
    404: "not_found",
    410: "not_found",
}
#: Words of git's last line, in lower case.
_SAID: tuple[tuple[str, PollFailureKind], ...] = (
    ("authentication failed", "refused"),
    ("could not read username", "refused"),
    ("could not read from remote", "refused"),
    ("permission denied", "refused"),
    ("host key verification failed", "refused"),
    ("not found", "not_found"),
    ("access denied or repository not exported", "not_found"),
)


class PollFailed(Exception):
    """No refs were read. `moved`: the server names another URL; `retry_after`: seconds to wait."""

    def __init__(
        self,
        kind: PollFailureKind,
        text: str,
        *,
        moved: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(text)
        self.kind = kind
        self.moved = moved
        self.retry_after = retry_after


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """What the HTTP engine hands over."""

    content_type: str
    location: str
    body: bytes


def kept(exchange: Exchange) -> bytes:
    """For `HttpKind(keep=...)`: the answer instead of archive records."""
    headers = {name.lower(): value for name, value in exchange.response_headers}
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    location = headers.get("location", "")
    return msgspec.msgpack.encode(Answer(content_type, location, bytes(exchange.body)))


class RefsPoller:
    """Polls repositories. `http` keeps with `kept` and decodes bodies; `named`: private places that
    a user named."""

    def __init__(
        self,
        http: HttpKind,
        git: GitProgram,
        egress: EgressPolicy,
        *,
        seconds: float = SECONDS,
        most_bytes: int = MOST_BYTES,
        most_refs: int = MOST_REFS,
        named: tuple[str, ...] = (),
    ) -> None:
        self._git = git
        self._egress = egress.naming(named)
        self._seconds = seconds
        self._most_bytes, self._most_refs = most_bytes, most_refs
        settings = RunSettings(
            time_limit=seconds,
            body_limit=most_bytes,
            redirects=0,
            cookies=False,
            robots=False,
            named=named,
        )
        self._http = http.open("git polls", settings)
        self._last = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.close()

    async def poll(
        self, remote: GitRemote, prefixes: Sequence[str] = PREFIXES, *, authorization: str = ""
    ) -> Refs:
        """The refs of a repository; raises PollFailed. `authorization` is the value of the HTTP
        header; it is sent to no other host and never shown."""
        if remote.protocol != "https":
            return await self._listed(remote, prefixes, "")
        refs = await self._asked(remote, prefixes, authorization)
        if refs is not None:
            return refs
        await self._check_smart(remote, authorization)
        return await self._listed(remote, prefixes, authorization)

    async def _asked(
        self, remote: GitRemote, prefixes: Sequence[str], authorization: str
    ) -> Refs | None:
        """The refs; None if the server does not answer in protocol version 2."""
        headers = {"Content-Type": _ASKED, "Accept": _RESULT, **_headers(authorization)}
        url = f"{remote.url.rstrip('/')}/{SERVICE}"
        fetched = await self._send(url, "POST", headers, ls_refs(prefixes))
        answer = _answer(fetched, remote)
        if answer is None or answer.content_type != _RESULT:
            return None
        try:
            return parse_ls_refs(answer.body, self._most_refs)
        except TooManyRefs as error:
            raise PollFailed("too_large", str(error)) from None
        except BadAnswer:
            return None

    async def _check_smart(self, remote: GitRemote, authorization: str) -> None:
        """Raises PollFailed unless the server speaks the smart protocol in some version."""
        url = f"{remote.url.rstrip('/')}/info/refs?service={SERVICE}"
        fetched = await self._send(url, "GET", _headers(authorization), b"")
        answer = _answer(fetched, remote)
        if answer is None or answer.content_type != _ADVERTISEMENT:
            found = (answer.content_type if answer else "") or f"status {fetched.outcome.status}"
            text = f"{remote.host} does not speak git's smart protocol there (it sent {found})"
            raise PollFailed("transient", text)

    async def _send(self, url: str, method: str, headers: dict[str, str], body: bytes) -> Fetched:
        self._last += 1
        done: asyncio.Future[Fetched] = asyncio.get_running_loop().create_future()
        work = Work(self._last, url, method, headers, body)
        self._http.start(work, lambda fetched: None if done.done() else done.set_result(fetched))
        return await done

    async def _listed(self, remote: GitRemote, prefixes: Sequence[str], authorization: str) -> Refs:
        patterns = [f"{prefix}*" if prefix.endswith("/") else prefix for prefix in prefixes]
        secret = {"http.extraHeader": f"Authorization: {authorization}"} if authorization else {}
        try:
            async with asyncio.timeout(self._seconds):
                pinned = await pin(remote, self._egress)
                with tempfile.TemporaryDirectory() as home:
                    found = await self._git.run(
                        *("ls-remote", "--quiet", "--symref", "--", pinned.url, *patterns),
                        home=Path(home),
                        remote=pinned,
                        secret=secret,
                        output=self._most_bytes,
                    )
            return parse_listing(found, self._most_refs)
        except TooManyRefs as error:
            raise PollFailed("too_large", str(error)) from None
        except (BadAnswer, InvalidInput) as error:
            raise PollFailed("transient", str(error)) from None
        except GitFailed as error:
            raise PollFailed(_kind_of(str(error)), str(error)) from None
        except TimeoutError:
            text = f"git took longer than {self._seconds:g} s for {remote.url}"
            raise PollFailed("transient", text) from None


def _headers(authorization: str) -> dict[str, str]:
    headers = {"Git-Protocol": "version=2"}
    return headers | ({"Authorization": authorization} if authorization else {})


def _answer(fetched: Fetched, remote: GitRemote) -> Answer | None:
    """The answer; None if another way of asking may help. Raises PollFailed."""
    outcome = fetched.outcome
    status, host = outcome.status, remote.host
    if kind := _MEANINGS.get(status):
        raise PollFailed(kind, f"{host} answered {status}")
    if outcome.failure == FailureClass.LIMIT:
        raise PollFailed("too_large", f"the answer of {host} is too large: {outcome.detail}")
    answer = msgspec.msgpack.decode(fetched.frames, type=Answer) if fetched.frames else None
    if _FIRST_REDIRECT <= status < _FIRST_ERROR:
        moved = answer.location if answer else ""
        raise PollFailed("transient", f"{host} answered {status}: it moved", moved=moved)
    if outcome.failure and (not status or status == 429 or status >= 500):  # noqa: PLR2004
        text = outcome.detail or f"{host} answered {status}"
        raise PollFailed("transient", text, retry_after=outcome.retry_after)
    return answer if status == _OK else None


def _kind_of(said: str) -> PollFailureKind:
    lower = said.lower()
    return next((kind for words, kind in _SAID if words in lower), "transient")
