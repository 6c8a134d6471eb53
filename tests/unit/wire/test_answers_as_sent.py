"""Answers as they came, beside what they were read as."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from skep.wire import codec
from skep.wire.client.answers_as_sent import AnswersAsSent, Extended, ListenedTransport
from skep.wire.client.transport import Answer, Request


class Part(msgspec.Struct, frozen=True):
    name: str = ""


class Whole(msgspec.Struct):
    parts: list[Part]
    by_name: dict[str, Part] = {}
    pairs: list[tuple[float, Part]] = []
    other: Part = Part()
    start: int = msgspec.field(default=0, name="from")


SENT = {
    "parts": [{"name": "a", "new": 1}, {"new": 2}],
    "by_name": {"x": {"name": "b", "new": 3}},
    "pairs": [[1, {"name": "c", "new": 4}]],
    "from": 7,
    "new": 5,
}


def kept(answers: AnswersAsSent, value: Any, path: str = "/a", kind: str = codec.JSON) -> Whole:
    """What was read of an answer that is kept."""
    answer = Answer("", 200, kind, codec.encode(value, kind))
    found = answer.decoded(Whole)
    answers.keep(Request("GET", path), answer, found)
    return found


def test_an_answer_and_its_parts_are_given_as_they_came() -> None:
    answers = AnswersAsSent()
    found = kept(answers, SENT)
    assert found.start == 7
    assert answers.of(found) == SENT
    assert answers.of({"items": found.parts}) == {"items": SENT["parts"]}
    assert answers.of([found.by_name["x"], found.pairs]) == [
        {"name": "b", "new": 3},
        [[1, {"name": "c", "new": 4}]],
    ]


def test_what_was_not_sent_stays_as_it_is() -> None:
    """A default of this version, a struct of the program, and answers that are not JSON."""
    answers = AnswersAsSent()
    found = kept(answers, SENT)
    own = Part("mine")
    assert answers.of([found.other, own, 1, None]) == [Part(), own, 1, None]
    packed = kept(answers, SENT, "/packed", codec.MSGPACK)
    assert answers.of(packed) is packed


def test_fields_are_added_to_an_answer() -> None:
    answers = AnswersAsSent()
    found = kept(answers, SENT)
    more = Extended(found, {"why": "x", "first": found.parts[0]})
    assert answers.of(more) == {**SENT, "why": "x", "first": {"name": "a", "new": 1}}
    plain = AnswersAsSent().of(Extended(Part("a"), {"why": "x"}))
    assert plain == {"name": "a", "why": "x"}


def test_of_equal_calls_the_newest_is_kept() -> None:
    """A command that asks every second does not grow."""
    answers = AnswersAsSent()
    first = kept(answers, SENT)
    second = kept(answers, {"parts": [], "new": 6})
    other = kept(answers, {"parts": [], "new": 7}, "/b")
    assert answers.of(first) is first
    assert answers.of([second, other]) == [{"parts": [], "new": 6}, {"parts": [], "new": 7}]


class Canned:
    """A transport that has one answer."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    async def send(self, _request: Request, read: Any) -> Any:
        return read(Answer("", 200, codec.JSON, self._content))

    def stream(self, request: Request) -> Any:
        raise AssertionError(request)


async def test_a_listener_hears_what_was_read_and_not_what_could_not_be() -> None:
    heard: list[Any] = []
    listen = lambda _request, _answer, found: heard.append(found)  # noqa: E731
    good = ListenedTransport(Canned(b'{"name": "a"}'), listen)
    found = await good.send(Request("GET", "/a"), lambda answer: answer.decoded(Part))
    assert found == Part("a")
    bad = ListenedTransport(Canned(b"[1]"), listen)
    with pytest.raises(Exception, match="did not answer like a Skep center"):
        await bad.send(Request("GET", "/a"), lambda answer: answer.decoded(Part))
    assert heard == [Part("a")]
