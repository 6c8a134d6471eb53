"""Packets and lists of refs: what servers send is parsed completely or refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.downloaders.git.pkt_line import LONGEST, BadPacket, Mark, mark, packet, packets
from skep.downloaders.git.refs import (
    BadAnswer,
    Refs,
    TooManyRefs,
    ls_refs,
    parse_listing,
    parse_ls_refs,
)

ID = "1" * 40
OTHER = "2" * 64


def answer(*lines: str) -> bytes:
    return b"".join((*map(packet, lines), mark(Mark.FLUSH)))


@given(st.lists(st.one_of(st.text(max_size=50), st.sampled_from(Mark)), max_size=20))
def test_packets_are_read_back(written: list[str | Mark]) -> None:
    data = b"".join(mark(one) if isinstance(one, Mark) else packet(one) for one in written)
    expected = [one if isinstance(one, Mark) else one.encode() for one in written]
    assert list(packets(data)) == expected


@given(st.binary(max_size=400))
def test_any_bytes_are_packets_or_refused(data: bytes) -> None:
    """Fuzz: no other error, no endless loop, nothing beyond the data."""
    try:
        found = list(packets(data))
    except BadPacket:
        return
    sizes = [4 if isinstance(one, Mark) else 4 + len(one) for one in found]
    assert sum(sizes) <= len(data) <= sum(sizes) + len(sizes)


@given(st.lists(st.one_of(st.binary(max_size=80), st.sampled_from([b"0000", b"0001", b"ffff"]))))
def test_any_answer_is_a_list_of_refs_or_refused(parts: list[bytes]) -> None:
    """Fuzz: packets with any content."""
    framed = [
        one if one.isalnum() and len(one) == 4 else b"%04x" % (len(one) + 4) + one for one in parts
    ]
    try:
        refs = parse_ls_refs(b"".join(framed))
    except BadAnswer:
        return
    assert all(name.startswith("refs/") and ".." not in name for name in refs.ids)


@pytest.mark.parametrize(
    "data",
    [b"000", b"00zz", b"-001", b"0003", b"0005", b"0009ab", b"fff1" + bytes(70000), b"<!DOCTYPE"],
)
def test_what_is_no_packet(data: bytes) -> None:
    with pytest.raises(BadPacket):
        list(packets(data))


def test_a_packet_has_a_longest_size() -> None:
    with pytest.raises(BadPacket):
        packet("x" * LONGEST)


def test_the_request_is_protocol_version_2() -> None:
    words = [b"command=ls-refs", b"agent=skep", Mark.DELIMITER, b"symrefs"]
    words += [b"ref-prefix refs/heads/", Mark.FLUSH]
    assert list(packets(ls_refs(("refs/heads/",)))) == words


def test_refs_and_the_head_are_read() -> None:
    data = answer(
        f"{ID} HEAD symref-target:refs/heads/main",
        f"{ID} refs/heads/main",
        f"{OTHER} refs/tags/v1 peeled:{ID}",
        f"{ID} refs/heads/-odd/ünï",
    )
    ids = {"refs/heads/main": ID, "refs/tags/v1": OTHER, "refs/heads/-odd/ünï": ID}
    assert parse_ls_refs(data) == Refs(ids, "refs/heads/main")


def test_an_empty_repository_names_its_future_branch() -> None:
    assert parse_ls_refs(answer("unborn HEAD symref-target:refs/heads/main")).head == (
        "refs/heads/main"
    )
    assert parse_ls_refs(answer()) == Refs({})


def test_the_digest_changes_with_every_part_and_not_with_the_order() -> None:
    one = Refs({"refs/heads/a": ID, "refs/heads/b": ID}, "refs/heads/a")
    same = Refs({"refs/heads/b": ID, "refs/heads/a": ID}, "refs/heads/a")
    others = [
        Refs({"refs/heads/a": ID, "refs/heads/b": "3" * 40}, "refs/heads/a"),
        Refs({"refs/heads/a": ID}, "refs/heads/a"),
        Refs(one.ids, "refs/heads/b"),
        Refs({}),
    ]
    assert one.digest == same.digest
    assert len({one.digest, *(other.digest for other in others)}) == 5


@pytest.mark.parametrize(
    "name",
    [
        "refs/heads/../../etc/passwd",
        "refs/heads/.git",
        "refs/heads/a//b",
        "refs/heads/a.lock",
        "refs/heads/a\x00b",
        "refs/heads/a\nb",
        "refs/heads/a:b",
        "refs/heads/a\\b",
        "refs/heads/",
        "refs/heads/a@{1}",
        "--upload-pack=touch",
        "/etc/passwd",
        "heads/main",
        "refs/heads/" + "x" * 2000,
    ],
)
def test_names_that_escape_are_refused(name: str) -> None:
    with pytest.raises(BadAnswer, match="not a valid name"):
        parse_ls_refs(answer(f"{ID} {name}"))
    if "\n" not in name:
        with pytest.raises(BadAnswer, match="not a valid name"):
            parse_listing(f"{ID}\t{name}\n".encode())


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "has no end"),
        (packet(f"{ID} refs/heads/a"), "has no end"),
        (answer(f"{ID} refs/heads/a") + b"0000", "does not end with its list"),
        (packet("x") + mark(Mark.DELIMITER), "does not end with its list"),
        (answer("ERR no such repository"), "the server says: 'no such repository'"),
        (answer("zz refs/heads/a"), "is not an object id"),
        (answer("refs/heads/a"), "is not an object id"),
        (b"<html></html>", "not the length of a packet"),
    ],
)
def test_broken_answers_say_what_is_wrong(data: bytes, text: str) -> None:
    with pytest.raises(BadAnswer, match=text):
        parse_ls_refs(data)


def test_too_many_refs_are_refused() -> None:
    lines = [f"{ID} refs/heads/{number}" for number in range(11)]
    assert len(parse_ls_refs(answer(*lines), most=11).ids) == 11
    with pytest.raises(TooManyRefs, match="more than 10 refs"):
        parse_ls_refs(answer(*lines), most=10)
    with pytest.raises(TooManyRefs, match="more than 10 refs"):
        parse_listing("".join(f"{ID}\trefs/heads/{n}\n" for n in range(11)).encode(), most=10)


def test_a_listing_of_git_gives_the_same_refs() -> None:
    listing = (
        f"ref: refs/heads/main\tHEAD\n{ID}\tHEAD\n{ID}\trefs/heads/main\n"
        f"{OTHER}\trefs/tags/v1\n{ID}\trefs/tags/v1^{{}}\n"
    )
    wanted = Refs({"refs/heads/main": ID, "refs/tags/v1": OTHER}, "refs/heads/main")
    assert parse_listing(listing.encode()) == wanted
