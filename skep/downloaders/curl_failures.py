"""What went wrong, in our words: libcurl's error numbers as failure classes. Pure.

Run by agents. A number that nobody has named yet is `network`, with libcurl's own words.
"""

from __future__ import annotations

from skep.archive.content_decoding import BadEncoding, OverLimit
from skep.archive.frames import Cut
from skep.model.failures.failure_class import FailureClass

DETAIL_LIMIT = 300

#: Failure class and sentence of a request; (None, "") = all is well so far.
CurlFailure = tuple[FailureClass | None, str]

#: Numbers of libcurl; some of them have no name in pycurl.
_TIMEOUT = 28
_RECEIVE = 56
_SENTENCES: dict[int, tuple[FailureClass, str]] = {
    1: (FailureClass.CONTENT, "not a proper HTTP answer: {}"),
    3: (FailureClass.CONTENT, "not a URL for libcurl: {}"),
    8: (FailureClass.CONTENT, "not a proper HTTP answer: {}"),
    18: (FailureClass.NETWORK, "the answer was cut off before its end"),
    61: (FailureClass.CONTENT, "not a proper HTTP answer: {}"),
    43: (FailureClass.CONTENT, "the request cannot be sent: {}"),
    52: (FailureClass.NETWORK, "the connection was closed before an answer came"),
    63: (FailureClass.LIMIT, "the answer is over the limit: {}"),
    100: (FailureClass.LIMIT, "the headers are over the limit: {}"),
}
_OTHER = (FailureClass.NETWORK, "{}")

_CUTS: dict[FailureClass, Cut | None] = {
    FailureClass.TIMEOUT: Cut.TIME,
    FailureClass.LIMIT: Cut.LENGTH,
    FailureClass.NETWORK: Cut.DISCONNECT,
    # A page that says that we are blocked is whole.
    FailureClass.BLOCKED: None,
}


def classify(number: int, message: str, time_limit: float) -> tuple[FailureClass, str]:
    """(class, sentence) for an error of libcurl."""
    if number == _TIMEOUT:
        slow = "too slow" in message
        late = f"no whole answer within {time_limit:g} s"
        return FailureClass.TIMEOUT, "the answer came too slowly" if slow else late
    if number == _RECEIVE:
        number = _what_was_received(message.lower())
    failure, sentence = _SENTENCES.get(number, _OTHER)
    return failure, sentence.format(message or f"the download failed (libcurl error {number})")


def _what_was_received(said: str) -> int:
    """A receive error may be the network, a broken protocol or far too many headers."""
    if "too large" in said or "too many" in said:
        return 100
    broken = "chunk" in said or "header" in said or "content-length" in said
    return 8 if broken else _RECEIVE


def cut_of(failure: FailureClass | None, trouble: BadEncoding | OverLimit | None) -> Cut | None:
    """Why the body in the archive is not whole; None when it is."""
    if failure is not None:
        return _CUTS.get(failure, Cut.UNSPECIFIED)
    return None if trouble is None else Cut.LENGTH


def short(detail: str) -> str:
    """One line of a length that fits a table."""
    return " ".join(detail.split())[:DETAIL_LIMIT]
