"""Applies content rules to a page and returns the bytes to store. Pure.

Agents run it in a child process with limits (`content_children`), because selectors and patterns
can run without end and parsers can fail on what servers send. Centers only compile rules with it,
to refuse invalid ones. Broken and mislabelled documents are not an error: what cannot be parsed
does not match.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from skep.model.content_rules import ContentRules, ContentStep
from skep.runtime.charset import charset_of, decode

if TYPE_CHECKING:
    from parsel import Selector

#: Maximum bytes of a body that rules are applied to, and of the result of a step.
WORK_LIMIT = 32 * 2**20
_SAID = 200

_LITERAL = re.compile(r"""'[^']*'|"[^"]*\"""")
_CALL = re.compile(r"([A-Za-z_][\w.-]*(?::[A-Za-z_][\w.-]*)?)\s*\(")
#: XPath 1.0 with its node tests and operators, and the functions of parsel.
_FUNCTION_NAMES = """
last position count id local-name namespace-uri name string concat starts-with contains
substring-before substring-after substring string-length normalize-space translate boolean
not true false lang number sum floor ceiling round comment text processing-instruction node
and or mod div has-class re:test re:match re:replace set:difference set:distinct
set:has-same-node set:intersection set:leading set:trailing
"""
_FUNCTIONS = frozenset(_FUNCTION_NAMES.split())


class BadRules(ValueError):
    """Rules that cannot be applied; the text says which and why."""


class Unmatched(Exception):
    """A step matched nothing, and the rules make this a failure."""


class OverSize(Exception):
    """The size exceeds the limit of the rules or the work limit."""


class Piece(NamedTuple):
    """A document between two steps."""

    body: bytes
    content_type: str


class CutContent(NamedTuple):
    """The result. `said` names the steps that removed something; "" = it is complete."""

    body: bytes
    content_type: str
    said: str = ""
    #: Whether only the end is missing and nothing was selected.
    is_prefix: bool = True


#: None = nothing matched.
Apply = Callable[[Piece], Piece | None]


class Cutting:
    """Compiled rules, for many pages."""

    def __init__(self, rules: ContentRules) -> None:
        """Raises BadRules."""
        self._rules = rules
        self._steps = [_compiled(place, step) for place, step in enumerate(rules.steps)]

    def cut(self, body: bytes, content_type: str) -> CutContent:
        """Apply the steps, then the limit; raises Unmatched or OverSize."""
        if not self._steps:
            return self.limited(body, content_type)
        if len(body) > WORK_LIMIT:
            raise OverSize(
                f"the page has {len(body)} bytes; content rules apply up to {WORK_LIMIT} bytes"
            )
        piece, said = Piece(body, content_type), list[str]()
        is_prefix = True
        for step, apply in zip(self._rules.steps, self._steps, strict=True):
            after = apply(piece)
            if after is None:
                return self._unmatched(step, body, content_type)
            if after.body != piece.body:
                said.append(str(step))
                is_prefix = is_prefix and bool(step.first)
            piece = after
        return self._limited(CutContent(*piece, _said(said), is_prefix))

    def limited(self, body: bytes, content_type: str) -> CutContent:
        """Only the size limit, for pages that the steps are not applied to; it never fails."""
        most = self._rules.max_bytes
        if not most or len(body) <= most:
            return CutContent(body, content_type)
        return CutContent(body[:most], content_type, f"max_bytes={most}")

    def _unmatched(self, step: ContentStep, body: bytes, content_type: str) -> CutContent:
        if self._rules.unmatched == "fail":
            raise Unmatched(f"nothing matches {_said([str(step)])}")
        if self._rules.unmatched == "all":
            return self._limited(CutContent(body, content_type))
        said = _said([str(step)]) if body else ""
        return CutContent(b"", content_type, said, is_prefix=False)

    def _limited(self, kept: CutContent) -> CutContent:
        most = self._rules.max_bytes
        if not most or len(kept.body) <= most:
            return kept
        if self._rules.over == "fail":
            raise OverSize(f"{len(kept.body)} bytes remain; max_bytes is {most}")
        said = "; ".join(filter(None, (kept.said, f"max_bytes={most}")))
        return kept._replace(body=kept.body[:most], said=said)


def _said(steps: list[str]) -> str:
    """One line of ASCII for a record's header."""
    text = " ".join("; ".join(steps).split())
    return text.encode("ascii", "backslashreplace").decode()[:_SAID]


def _compiled(place: int, step: ContentStep) -> Apply:
    kind = step.kind
    if not kind:
        raise BadRules(
            f"content step {place} must have exactly one of {', '.join(step.__struct_fields__)}"
        )
    try:
        return _COMPILERS[kind](step)
    except Exception as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise BadRules(f"content step {place}: {_said([str(step)])!r}: {reason}") from error


def _compile_css(step: ContentStep) -> Apply:
    from parsel.csstranslator import GenericTranslator, HTMLTranslator

    html, xml = HTMLTranslator().css_to_xpath(step.css), GenericTranslator().css_to_xpath(step.css)
    return lambda piece: _select(piece, html, xml)


def _compile_xpath(step: ContentStep) -> Apply:
    from lxml.etree import XPath

    # Compiled but not evaluated: centers call this, and an expression can run without end even
    # without a page. So function names, which only an evaluation would check, are looked up.
    XPath(step.xpath)
    unknown = set(_CALL.findall(_LITERAL.sub("", step.xpath))) - _FUNCTIONS
    if unknown:
        raise BadRules(f"there is no function {min(unknown)}()")
    return lambda piece: _select(piece, step.xpath, step.xpath)


def _compile_jsonpath(step: ContentStep) -> Apply:
    import jsonpath

    find = jsonpath.compile(step.jsonpath).findall
    return lambda piece: _pick(piece, find)


def _compile_regex(step: ContentStep) -> Apply:
    pattern = re.compile(step.regex)
    return lambda piece: _search(piece, pattern)


def _compile_first(step: ContentStep) -> Apply:
    return lambda piece: piece._replace(body=piece.body[: step.first])


_COMPILERS: dict[str, Callable[[ContentStep], Apply]] = {
    "css": _compile_css,
    "xpath": _compile_xpath,
    "jsonpath": _compile_jsonpath,
    "regex": _compile_regex,
    "first": _compile_first,
}


def _select(piece: Piece, html: str, xml: str) -> Piece | None:
    selector = _selector(piece)
    if selector is None:
        return None
    try:
        found = selector.xpath(xml if selector.type == "xml" else html)
    except ValueError as error:
        raise BadRules(str(error)) from error
    body = _joined(match.get() for match in found)
    if body is None:
        return None
    texts = not any(hasattr(match.root, "tag") for match in found)
    fallback = f"text/{selector.type}"
    mime = "text/plain" if texts else _mime(piece.content_type, fallback)
    return Piece(body, f"{mime}; charset=utf-8")


def _selector(piece: Piece) -> Selector | None:
    from lxml.etree import LxmlError
    from parsel import Selector

    text = _text(piece)
    if not text.strip():
        return None
    mime = _mime(piece.content_type)
    is_xml = mime.endswith(("/xml", "+xml")) and mime != "application/xhtml+xml"
    # Real HTML is deeply nested; for XML the parser's limits against expansion attacks stay.
    try:
        return Selector(text=text, type="xml" if is_xml else "html", huge_tree=not is_xml)
    except (LxmlError, ValueError):
        return None


def _pick(piece: Piece, find: Callable[[Any], list[object]]) -> Piece | None:
    from jsonpath import JSONPathError

    try:
        found = find(_json(piece))
    except (JSONPathError, ValueError, TypeError, ArithmeticError, LookupError, RecursionError):
        # Not JSON, nested too deeply, or values that the path cannot compare.
        return None
    return Piece(_as_json(found), "application/json") if found else None


def _json(piece: Piece) -> Any:
    try:
        return msgspec.json.decode(piece.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(_text(piece))


def _as_json(found: list[object]) -> bytes:
    try:
        body = msgspec.json.encode(found)
    except (UnicodeEncodeError, OverflowError, ValueError):
        body = json.dumps(found).encode()
    if len(body) > WORK_LIMIT:
        raise OverSize(f"the result of the content rules exceeds {WORK_LIMIT} bytes")
    return body


def _search(piece: Piece, pattern: re.Pattern[str]) -> Piece | None:
    body = _joined(_matched(match) for match in pattern.finditer(_text(piece)))
    if body is None:
        return None
    return Piece(body, f"{_mime(piece.content_type, 'text/plain')}; charset=utf-8")


def _matched(match: re.Match[str]) -> str:
    """The whole match, or its non-empty groups if the pattern has groups."""
    groups = [group for group in match.groups() if group is not None]
    return "\n".join(groups) if groups else match[0]


def _joined(parts: Iterable[str]) -> bytes | None:
    """One match per line; None without a match. Overlapping matches can be many times larger than
    their page, so the size is checked while they are joined."""
    lines, room = list[bytes](), WORK_LIMIT
    for part in parts:
        lines.append(part.encode("utf-8", "replace"))
        room -= len(lines[-1]) + 1
        if room < 0:
            raise OverSize(f"the result of the content rules exceeds {WORK_LIMIT} bytes")
    return b"\n".join(lines) if lines else None


def _text(piece: Piece) -> str:
    return decode(piece.body, charset_of(piece.body, piece.content_type))


def _mime(content_type: str, otherwise: str = "") -> str:
    return content_type.partition(";")[0].strip().lower() or otherwise
