"""Maps libcurl's error numbers to failure classes and sentences. Pure.

Run by agents. Numbers that are not listed are `network`, with libcurl's own message.
"""

from __future__ import annotations

from skep.archive.content_decoding import BadEncoding, OverLimit
from skep.archive.frames import Cut
from skep.model.failures.failure_class import FailureClass

DETAIL_LIMIT = 300

#: Failure class and sentence of a request; (None, "") = no failure so far.
CurlFailure = tuple[FailureClass | None, str]

#: Numbers of libcurl; some of them have no name in pycurl.
_TIMEOUT = 28
_RECEIVE = 56
_SENTENCES: dict[int, tuple[FailureClass, str]] = {
    1: (FailureClass.CONTENT, "not a valid HTTP response: {}"),
    3: (FailureClass.CONTENT, "libcurl does not accept the URL: {}"),
    8: (FailureClass.CONTENT, "not a valid HTTP response: {}"),
    18: (FailureClass.NETWORK, "the response ended early"),
    61: (FailureClass.CONTENT, "not a valid HTTP response: {}"),
    43: (FailureClass.CONTENT, "cannot send the request: {}"),
    52: (FailureClass.NETWORK, "the connection was closed before a response"),
    63: (FailureClass.LIMIT, "the response exceeds the limit: {}"),
    100: (FailureClass.LIMIT, "the headers exceed the limit: {}"),
}
_OTHER = (FailureClass.NETWORK, "{}")

_CUTS: dict[FailureClass, Cut | None] = {
    FailureClass.TIMEOUT: Cut.TIME,
    FailureClass.LIMIT: Cut.LENGTH,
    FailureClass.NETWORK: Cut.DISCONNECT,
    # A page that reports a block is complete.
    FailureClass.BLOCKED: None,
}


def classify(number: int, message: str, time_limit: float) -> tuple[FailureClass, str]:
    """(class, sentence) for an error of libcurl."""
    if number == _TIMEOUT:
        slow = "too slow" in message
        late = f"no complete response within {time_limit:g} s"
        return FailureClass.TIMEOUT, "the response was too slow" if slow else late
    if number == _RECEIVE:
        number = _what_was_received(message.lower())
    failure, sentence = _SENTENCES.get(number, _OTHER)
    return failure, sentence.format(message or f"the download failed (libcurl error {number})")


def _what_was_received(said: str) -> int:
    """A receive error may be the network, an invalid response or too many headers."""
    if "too large" in said or "too many" in said:
        return 100
    broken = "chunk" in said or "header" in said or "content-length" in said
    return 8 if broken else _RECEIVE


def cut_of(failure: FailureClass | None, trouble: BadEncoding | OverLimit | None) -> Cut | None:
    """Why the body in the archive is incomplete; None when it is complete."""
    if failure is not None:
        return _CUTS.get(failure, Cut.UNSPECIFIED)
    return None if trouble is None else Cut.LENGTH


def short(detail: str) -> str:
    """One line that fits a table."""
    return " ".join(detail.split())[:DETAIL_LIMIT]
