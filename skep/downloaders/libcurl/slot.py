"""One libcurl handle and the data that it collects. Runs in the thread of a downloader.

A handle is configured once and reused; per request only the differences are set. A request with
special settings spoils its handle, which is closed afterwards: the connections belong to the
CurlMulti and stay.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pycurl

from skep.archive.content_decoding import (
    STORED_CODING,
    BadEncoding,
    Decoder,
    OverLimit,
    codings,
    unknown_codings,
)
from skep.archive.frames import Cut, Exchange
from skep.archive.long_heads import HEAD_ROOM
from skep.downloaders.egress_policy import EgressPolicy
from skep.downloaders.libcurl.request_headers import Outgoing
from skep.downloaders.libcurl.response_head import Head, read_head
from skep.downloaders.libcurl.transfer import REDIRECTS, Transfer
from skep.downloaders.proxies import Proxy

#: Bytes of a redirect's unused body that are read to keep the connection.
REDIRECT_BODY = 64 * 1024
#: Bytes that an encoded body may exceed the limit of the decoded one, in addition to an eighth.
ENCODED_EXTRA = 64 * 1024
CONNECT_SECONDS = 30.0
#: A response below this many bytes per second, for this many seconds, is too slow.
SLOWEST, SLOW_SECONDS = 1, 60
DNS_SECONDS = 60
#: An option of libcurl that has no name in pycurl.
_SUPPRESS_CONNECT_HEADERS = 265
_PROXY_TYPES = {
    "http": pycurl.PROXYTYPE_HTTP,
    "socks5": pycurl.PROXYTYPE_SOCKS5,
    "socks5h": pycurl.PROXYTYPE_SOCKS5_HOSTNAME,
}


@dataclass(frozen=True, slots=True)
class SlotOptions:
    """The options of all handles of a run."""

    egress: EgressPolicy
    outgoing: Outgoing
    time_limit: float
    body_limit: int
    ca_file: str
    ca_path: str
    #: A CurlShare with the cookies of the run; None = no cookies.
    share: Any
    on_new_socket: Callable[[int, int], int]
    now: Callable[[], float]
    #: Whether bodies are archived as received.
    as_received: Callable[[], bool]
    cookies: bool = True
    proxy: Proxy | None = None


class Slot:
    """A reusable handle."""

    __slots__ = (
        "_chunks",
        "_decoder",
        "_head",
        "_limit",
        "_lines_set",
        "_options",
        "_original",
        "_room",
        "_timeout",
        "curl",
        "home",
        "lines",
        "note",
        "proxied",
        "refused",
        "spoiled",
        "transfer",
        "trouble",
        "wire",
    )  # fmt: skip

    def __init__(self, options: SlotOptions, home: list[Slot]) -> None:
        self._options = options
        #: The list to which it is returned.
        self.home = home
        self.proxied = options.proxy is not None
        self._limit = options.body_limit
        self._lines_set = options.outgoing
        self._timeout = options.time_limit
        self._original: socket.socket | None = None
        self.spoiled = False
        self.lines: list[bytes] = []
        self._chunks: list[bytes] = []
        self._clear()
        self.transfer: Transfer
        self.curl = self._new_curl(options)
        self.curl.slot = self

    def _clear(self) -> None:
        self.lines.clear()
        self._chunks.clear()
        self._head: Head | None = None
        self._decoder: Decoder | None = None
        self._room = self._limit
        #: Body bytes on the wire.
        self.wire = 0
        #: Why an address was refused; "" = none was.
        self.refused = ""
        #: Why we stopped reading or decoding.
        self.trouble: BadEncoding | OverLimit | None = None
        #: A remark about a response that is valid all the same.
        self.note = ""

    def aim(self, transfer: Transfer) -> None:
        """Configure the handle for the next hop of a transfer."""
        self._clear()
        self.transfer = transfer
        curl = self.curl
        curl.setopt(pycurl.URL, transfer.target.url)
        if transfer.outgoing is not self._lines_set:
            curl.setopt(pycurl.HTTPHEADER, transfer.outgoing.lines)
            self._lines_set = transfer.outgoing
        left = self._options.time_limit - transfer.elapsed
        if left != self._timeout:
            curl.setopt(pycurl.TIMEOUT_MS, max(int(left * 1000), 1))
            self._timeout = left
        if not transfer.is_plain:
            self.spoiled = True
            self._set_special(curl, transfer)

    @property
    def head(self) -> Head:
        if self._head is None:
            self._head = read_head(self.lines)
        return self._head

    def body(self) -> bytes:
        """The decoded body as far as received; the encoded one when it cannot be decoded."""
        decodes = self._decoder is not None and not isinstance(self.trouble, BadEncoding)
        pieces = self._decoder.pieces if decodes and self._decoder is not None else self._chunks
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def exchange(self, head: Head, address: str, cut: Cut | None, hop: int = 0) -> Exchange:
        """The request and its response, for the archive."""
        transfer = self.transfer
        encoded = self._decoder is not None and cut is None and self._is_kept_encoded(head)
        return Exchange(
            transfer.target.url, transfer.method, transfer.outgoing.shown, transfer.body,
            head.status, head.reason, head.headers,
            b"".join(self._chunks) if encoded else self.body(),
            "" if self.proxied else address, cut, None, hop, encoded,
        )  # fmt: skip

    def _is_kept_encoded(self, head: Head) -> bool:
        """Only if every reader can decode it: a complete body with one coding that its header
        names, in a head that is not cut."""
        coding = (head.find("content-encoding") or "").strip().lower()
        plain = self.trouble is None and coding == STORED_CODING and len(head.raw) < HEAD_ROOM // 2
        return plain and self._options.as_received()

    def finish_body(self) -> None:
        """Raises BadEncoding when the coding of a complete body has no valid end."""
        if self._decoder is not None and self.trouble is None:
            try:
                self._decoder.finish()
            except BadEncoding as trouble:
                self.trouble = trouble
                raise

    def close(self) -> None:
        self._clear()
        self._close_original()
        self.curl.close()
        self.curl.slot = None  # else both wait for the garbage collector

    def _on_body(self, data: bytes) -> int | None:
        """Called by libcurl; 0 stops the transfer. It must not raise."""
        try:
            if not self.wire:
                self._begin_body()
            self.wire += len(data)
            self._keep(data)
            if self._decoder is not None and self.trouble is None:
                self._decode(self._decoder, data)
        except (BadEncoding, OverLimit) as trouble:
            self.trouble = self.trouble or trouble
            return 0
        return None

    def _decode(self, decoder: Decoder, data: bytes) -> None:
        """A body that cannot be decoded is read to its end and stored as received."""
        try:
            decoder.feed(data)
        except BadEncoding as trouble:
            self.trouble = trouble

    def _keep(self, data: bytes) -> None:
        self._room -= len(data)
        if self._room >= 0:
            self._chunks.append(data)
            return
        self._chunks.append(data[: self._room])
        self._room = 0
        raise OverLimit

    def _begin_body(self) -> None:
        head = self.head
        if head.status in REDIRECTS:
            self._room = min(self._room, REDIRECT_BODY)
        coding = head.find("content-encoding")
        if coding is None:
            return
        self.note = unknown_codings(coding)
        if names := codings(coding):
            self._decoder = Decoder(names, self._room)
            # The encoded body is stored with the decoded one, and may be a little larger.
            self._room += self._room // 8 + ENCODED_EXTRA

    def _on_socket(self, _purpose: int, address: Any) -> Any:
        """The only place where a connection starts: refuse addresses that are not allowed."""
        connected, port = address.addr[:2]
        reason = self._options.egress.check(str(connected), int(port), self._place())
        if reason is not None:
            self.refused = reason
            return pycurl.SOCKET_BAD
        self._close_original()
        try:
            self._original = socket.socket(address.family, address.socktype, address.protocol)
        except OSError:
            return pycurl.SOCKET_BAD
        return self._original

    def _place(self) -> str:
        """The `host:port` of the connection."""
        proxy = self._options.proxy
        return self.transfer.target.place if proxy is None else proxy.place

    def _on_copied(self, fd: int, purpose: int) -> int:
        """pycurl has copied the socket and closes only its copy."""
        self._close_original()
        return self._options.on_new_socket(fd, purpose)

    def _close_original(self) -> None:
        if self._original is not None:
            self._original.close()
            self._original = None

    def _new_curl(self, options: SlotOptions) -> Any:
        curl = pycurl.Curl()
        for option, value in _fixed(options):
            curl.setopt(option, value)
        curl.setopt(pycurl.HEADERFUNCTION, self.lines.append)
        curl.setopt(pycurl.WRITEFUNCTION, self._on_body)
        curl.setopt(pycurl.OPENSOCKETFUNCTION, self._on_socket)
        curl.setopt(pycurl.SOCKOPTFUNCTION, self._on_copied)
        if options.share is not None:
            curl.setopt(pycurl.SHARE, options.share)
        if options.share is not None and options.cookies:
            curl.setopt(pycurl.COOKIEFILE, "")
        if options.proxy is not None:
            _set_proxy(curl, options.proxy)
        if options.ca_file:
            curl.setopt(pycurl.CAINFO, options.ca_file)
        if options.ca_path:
            curl.setopt(pycurl.CAPATH, options.ca_path)
        return curl

    @staticmethod
    def _set_special(curl: Any, transfer: Transfer) -> None:
        if transfer.target.login:
            way = pycurl.HTTPAUTH_DIGEST if transfer.by_digest else pycurl.HTTPAUTH_BASIC
            curl.setopt(pycurl.HTTPAUTH, way)
            user, password = transfer.target.login
            curl.setopt(pycurl.USERNAME, user.encode())
            curl.setopt(pycurl.PASSWORD, password.encode())
        if transfer.method == "HEAD":
            curl.setopt(pycurl.NOBODY, 1)
            return
        if transfer.body or transfer.method == "POST":
            curl.setopt(pycurl.POSTFIELDS, transfer.body)
        if transfer.method != "POST":
            curl.setopt(pycurl.CUSTOMREQUEST, transfer.method)


def _set_proxy(curl: Any, proxy: Proxy) -> None:
    """Set user and password separately: they are never part of a URL."""
    curl.setopt(pycurl.NOPROXY, "")
    curl.setopt(pycurl.PROXY, proxy.place)
    curl.setopt(pycurl.PROXYTYPE, _PROXY_TYPES[proxy.scheme])
    # Else the proxy's response to CONNECT would be taken for the server's.
    curl.setopt(_SUPPRESS_CONNECT_HEADERS, 1)
    if proxy.login:
        user, password = proxy.login
        curl.setopt(pycurl.PROXYUSERNAME, user.encode())
        curl.setopt(pycurl.PROXYPASSWORD, password.encode())


def _fixed(options: SlotOptions) -> list[tuple[int, Any]]:
    connect = min(options.time_limit, CONNECT_SECONDS)
    return [
        (pycurl.NOSIGNAL, 1),
        (pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS),
        (pycurl.FOLLOWLOCATION, 0),
        (pycurl.HTTP09_ALLOWED, 0),
        (pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_2TLS),
        # No proxy from the environment: the checked address must be the server's.
        (pycurl.PROXY, ""),
        (pycurl.NOPROXY, "*"),
        (pycurl.NETRC, 0),
        (pycurl.SSL_VERIFYPEER, 1),
        (pycurl.SSL_VERIFYHOST, 2),
        (pycurl.PATH_AS_IS, 1),
        (pycurl.DNS_CACHE_TIMEOUT, DNS_SECONDS),
        (pycurl.TIMEOUT_MS, max(int(options.time_limit * 1000), 1)),
        (pycurl.CONNECTTIMEOUT_MS, max(int(connect * 1000), 1)),
        (pycurl.LOW_SPEED_LIMIT, SLOWEST),
        (pycurl.LOW_SPEED_TIME, SLOW_SECONDS),
        (pycurl.HTTPHEADER, options.outgoing.lines),
    ]
