"""A response as spider code sees it. Nothing is unpacked or parsed before it is asked for.

Runs in the spider's process, once per page. `title` and `links` share one fast parse;
`css` and `xpath` are parsel's, imported and built at their first use.
"""

from __future__ import annotations

import json as stdlib_json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from skep.errors import InvalidInput
from skep.runtime.charset import charset_of, decode
from skep.spiders.authoring.absolute_urls import Joiner
from skep.spiders.authoring.headers import Headers
from skep.spiders.authoring.links import Links, Patterns
from skep.spiders.authoring.parsed_page import Document
from skep.spiders.authoring.request import Callback, Request, callback_name, plain_request

if TYPE_CHECKING:
    from parsel import Selector, SelectorList

#: Where `<base>` is looked for.
HEAD_BYTES = 16_384
#: Head and body as they were archived: (status, headers, body, address, cut).
Unpacked = tuple[int, Sequence[tuple[str, str]], bytes, str, str]


class Hop(NamedTuple):
    """A redirect that was followed: the URL that was asked, and its answer."""

    url: str
    status: int
    headers: Headers


class Response:
    """What came back for a request, after redirects."""

    def __init__(
        self,
        url: str,
        *,
        status: int = 200,
        headers: Mapping[str, str] | Sequence[tuple[str, str]] = (),
        body: bytes | str = b"",
        request: Request | None = None,
        address: str = "",
        cut: str = "",
        elapsed: float = 0.0,
        unpack: Callable[[], Unpacked] | None = None,
        hops: Callable[[], list[Hop]] | None = None,
    ) -> None:
        #: The URL that answered in the end.
        self.url = url
        self.status = status
        self.request = request or Request(url)
        #: Seconds that the download took; 0 when they are not known.
        self.elapsed = elapsed
        self._pairs = headers
        self._body = body.encode() if isinstance(body, str) else body
        self._address = address
        self._cut = cut
        self._unpack = unpack
        self._find_hops = hops
        self._hops: list[Hop] | None = None
        self._headers: Headers | None = None
        self._charset = ""
        self._text: str | None = None
        self._document: Document | None = None
        self._joiner: Joiner | None = None
        self._selector: Selector | None = None

    def _load(self) -> None:
        unpack, self._unpack = self._unpack, None
        if unpack is not None:
            self.status, self._pairs, self._body, self._address, self._cut = unpack()

    @property
    def ok(self) -> bool:
        """A status from 200 to 399."""
        return 200 <= self.status < 400  # noqa: PLR2004 - what HTTP calls a success

    @property
    def body(self) -> bytes:
        """The bytes, content encoding undone."""
        self._load()
        return self._body

    @property
    def headers(self) -> Headers:
        self._load()
        if self._headers is None:
            self._headers = Headers(self._pairs)
        return self._headers

    @property
    def address(self) -> str:
        """The IP address that answered; "" when it is not known."""
        self._load()
        return self._address

    @property
    def cut(self) -> str:
        """Why the body is not the whole page; "" when it is. The content rules that cut it,
        such as `css=article`, or `length`, `time`, `disconnect`, `unspecified`."""
        self._load()
        return self._cut

    @property
    def history(self) -> list[Hop]:
        """The redirects that led here, in their order; [] when there was none."""
        if self._hops is None:
            self._hops = self._find_hops() if self._find_hops else []
        return self._hops

    @property
    def meta(self) -> dict[str, Any]:
        """What the request carried."""
        return self.request.meta

    @property
    def kwargs(self) -> dict[str, Any]:
        """What the callback got beside the response."""
        return self.request.kwargs

    @property
    def depth(self) -> int:
        """Pages between the start and this one."""
        return self.request.depth

    @property
    def charset(self) -> str:
        if not self._charset:
            self._charset = charset_of(self.body, self._content_type())
        return self._charset

    def _content_type(self) -> str:
        pairs = self._pairs.items() if isinstance(self._pairs, Mapping) else self._pairs
        return next((value for name, value in pairs if name.lower() == "content-type"), "")

    @property
    def text(self) -> str:
        """The body as text, by its byte order mark, header or own word."""
        if self._text is None:
            self._text = decode(self.body, self.charset)
        return self._text

    def json(self) -> Any:
        """The body as JSON; raises InvalidInput that says where it breaks off."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # other charsets, a byte order mark, NaN: the standard library takes them
        try:
            return stdlib_json.loads(self.text)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"{self.url} is not JSON: {error}") from error

    @property
    def document(self) -> Document:
        """The fast parse, shared by `title`, `links` and rules."""
        if self._document is None:
            is_utf8 = self.charset == "utf-8"
            self._document = Document(self.body if is_utf8 else self.text)
        return self._document

    @property
    def title(self) -> str:
        """The text of `<title>`."""
        return self.document.title()

    @property
    def joiner(self) -> Joiner:
        """Knows where the links of this page start."""
        if self._joiner is None:
            base = self.document.base() if self._may_have_base() else ""
            self._joiner = Joiner(Joiner(self.url).join(base) if base else self.url)
        return self._joiner

    def _may_have_base(self) -> bool:
        """Spares those who use selectors alone the second parse; `<base>` is in the head."""
        return self._document is not None or b"<base" in self.body[:HEAD_BYTES].lower()

    def urljoin(self, url: str) -> str:
        """An absolute URL, without fragment, from any link of the page."""
        return self.joiner.join(url)

    def links(
        self,
        allow: Patterns = (),
        deny: Patterns = (),
        hosts: str | Sequence[str] = (),
        **more: Any,
    ) -> list[str]:
        """Absolute URLs of the page's links, each once; `more` as in `Links`."""
        return Links(allow, deny, allow_hosts=hosts, **more).of(self)

    @property
    def selector(self) -> Selector:
        """parsel's view of the page."""
        if self._selector is None:
            from parsel import Selector

            kind = "xml" if self._is_xml() else "html"
            # Real HTML is deep; XML keeps the parser's guards against bombs.
            self._selector = Selector(text=self.text, type=kind, huge_tree=kind == "html")
        return self._selector

    def _is_xml(self) -> bool:
        self._load()
        kind = self._content_type().partition(";")[0].strip().lower()
        return kind.endswith(("/xml", "+xml")) and kind != "application/xhtml+xml"

    def css(self, query: str) -> SelectorList[Selector]:
        """Select with CSS: `response.css("h1::text").get()`."""
        return self.selector.css(query)

    def xpath(self, query: str, **more: Any) -> SelectorList[Selector]:
        """Select with XPath: `response.xpath("//h1/text()").get()`."""
        return self.selector.xpath(query, **more)

    def follow(self, link: str | Selector, callback: Callback = None, **more: Any) -> Request:
        """A request for a link of this page: a URL, part of one, or a selected element."""
        href = link if isinstance(link, str) else _href(link)
        url = self.joiner.join(href)
        if not url:
            raise InvalidInput(f"the link {href[:200]!r} on {self.url} is not a URL")
        if more:
            return Request(url, callback, **more)
        return plain_request(url, callback_name(callback))

    def follow_all(
        self,
        urls: Iterable[str | Selector] | None = None,
        callback: Callback = None,
        *,
        css: str = "",
        xpath: str = "",
        **more: Any,
    ) -> Iterator[Request]:
        """Requests for many links: given, selected, or (without either) all of the page.

        Links that lead to no page (`mailto:`, `javascript:`) and repeated ones are left out.
        """
        if urls is not None and (css or xpath):
            raise InvalidInput("follow_all takes urls, css or xpath, one of them")
        name = callback_name(callback)
        for url in self._chosen(urls, css, xpath):
            yield Request(url, name, **more) if more else plain_request(url, name)

    def _chosen(self, urls: Iterable[str | Selector] | None, css: str, xpath: str) -> Iterable[str]:
        if urls is None and not css and not xpath:
            return self.links()
        found = urls if urls is not None else self._select(css, xpath)
        hrefs = (link if isinstance(link, str) else _href(link) for link in found)
        joined = dict.fromkeys(map(self.joiner.join, hrefs))
        return [url for url in joined if url.startswith(("http://", "https://"))]

    def _select(self, css: str, xpath: str) -> SelectorList[Selector]:
        return self.css(css) if css else self.xpath(xpath)

    def __repr__(self) -> str:
        return f"<Response {self.status} {self.url}>"


def _href(selector: Selector) -> str:
    """The link of a selected element, or of a selected attribute or text."""
    root = selector.root
    if isinstance(root, str):
        return root
    value = root.get("href") or root.get("src") if hasattr(root, "get") else None
    return value or ""


class Failure:
    """A request that did not work: `kind` is network, timeout, status, blocked, content,
    code, limit, lost or expired, `detail` a sentence."""

    def __init__(self, kind: str, detail: str, request: Request, response: Response | None) -> None:
        self.kind = kind
        self.detail = detail
        self.request = request
        #: What came all the same, such as the page of a 404; None when nothing did.
        self.response = response

    @property
    def url(self) -> str:
        return self.request.url

    @property
    def status(self) -> int:
        """0 when no answer came."""
        return self.response.status if self.response else 0

    def __repr__(self) -> str:
        return f"<Failure {self.kind} {self.url}: {self.detail}>"
