"""Answers of other versions are read: with fields that this one does not know, and without fields
that have a default here. For every route, in every struct of its answer."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from skep.center.app import api_table
from skep.errors import CenterUnreachable, Malformed
from skep.model.jobs.job import Job, KeptJob
from skep.model.states import RunState
from skep.wire import codec
from skep.wire.client.transport import Answer

ROWS = {row.route.id: row.route for row in api_table() if row.gives is not None}
NEWER = "a_field_of_a_newer_center"
#: Tried one after the other for a text with a pattern.
WORDS = ("a", "r1", "127.0.0.1:80", "2026-01-01", "http://a/", "/a", "0", "a" * 64)


def written(kind: inspect.Type, *, more: bool) -> Any:  # noqa: PLR0911 - one per sort of type
    """A value of this type as it is on the wire. With `more` every field has a value, and each
    struct has one field more; else only what has no default is there."""
    if isinstance(kind, inspect.Metadata):
        return written(kind.type, more=more)
    if isinstance(kind, inspect.UnionType):
        kinds = [one for one in kind.types if not isinstance(one, inspect.NoneType)]
        return written(max(kinds, key=_weight), more=more)
    if isinstance(kind, inspect.StructType):
        return _struct(kind, more=more)
    if isinstance(kind, inspect.CollectionType):
        return [written(kind.item_type, more=more)]
    if isinstance(kind, inspect.TupleType):
        return [written(one, more=more) for one in kind.item_types]
    if isinstance(kind, inspect.DictType):
        return {written(kind.key_type, more=more): written(kind.value_type, more=more)}
    return _plain(kind)


def _weight(kind: inspect.Type) -> int:
    """What may hold a struct is more interesting than what cannot."""
    inner = kind.type if isinstance(kind, inspect.Metadata) else kind
    holds = (inspect.StructType, inspect.CollectionType, inspect.DictType, inspect.TupleType)
    return int(isinstance(inner, holds))


def _struct(kind: inspect.StructType, *, more: bool) -> Any:
    fields = {
        field.encode_name: written(field.type, more=more)
        for field in kind.fields
        if more or field.required
    }
    if kind.array_like:
        return [*fields.values(), *([NEWER] if more else [])]
    tag = {kind.tag_field: kind.tag} if kind.tag_field else {}
    return {**tag, **fields, **({NEWER: {"deep": [1]}} if more else {})}


def _plain(kind: inspect.Type) -> Any:
    if isinstance(kind, inspect.StrType):
        return next(word for word in WORDS if re.search(kind.pattern or "", word))
    if isinstance(kind, inspect.IntType | inspect.FloatType):
        return max(kind.ge or 0, 0 if kind.gt is None else kind.gt + 1)
    if isinstance(kind, inspect.EnumType):
        return next(iter(kind.cls)).value
    if isinstance(kind, inspect.LiteralType):
        return kind.values[0]
    found: dict[type[inspect.Type], Any] = {
        inspect.BoolType: True, inspect.BytesType: "", inspect.AnyType: 1, inspect.NoneType: None
    }  # fmt: skip
    return found[type(kind)]


def answer(value: Any) -> Answer:
    return Answer(
        "http://center", 200, "application/json; charset=utf-8", codec.encode(value, codec.JSON)
    )


@pytest.mark.parametrize("name", ROWS)
def test_an_answer_of_a_newer_center_is_read(name: str) -> None:
    """C8: in every struct there is a field that this version does not know."""
    gives: Any = ROWS[name].gives
    value = written(inspect.type_info(gives), more=True)
    found = answer(value).decoded(gives)
    assert type(found) is gives
    assert NEWER.encode() not in codec.encode(found, codec.JSON)


@pytest.mark.parametrize("name", ROWS)
def test_an_answer_of_an_older_center_is_read(name: str) -> None:
    """C8: fields that have a default are not there."""
    gives: Any = ROWS[name].gives
    value = written(inspect.type_info(gives), more=False)
    found = answer(value).decoded(gives)
    for field in msgspec.structs.fields(gives):
        if field.default is not msgspec.NODEFAULT:
            assert getattr(found, field.name) == field.default


def test_nothing_that_is_known_is_lost() -> None:
    """Only the unknown fields go: the same job comes out, on both encodings."""
    job = Job("a", settings={"retries": 3, "of_a_plugin": {"x": [1]}}, note="n")
    kept = KeptJob(job, 1, "me", 1.0, 2.0)
    value = msgspec.to_builtins(kept)
    value["job"]["newer"] = value["newer"] = 1
    for kind in (codec.JSON, codec.MSGPACK):
        found = Answer("", 200, kind, codec.encode(value, kind)).decoded(KeptJob)
        assert found == kept


def test_what_users_submit_is_as_strict_as_ever() -> None:
    """A misspelt field of a document is an error."""
    with pytest.raises(Malformed, match="nmae"):
        codec.decode(b'{"name": "a", "nmae": 1}', Job, codec.JSON)


@pytest.mark.parametrize("content", [b"<html>", b"[1]", b'{"job": 1}', b""])
def test_an_invalid_answer_is_reported(content: bytes) -> None:
    with pytest.raises(CenterUnreachable, match="is the address right"):
        Answer("http://a", 200, codec.JSON, content).decoded(KeptJob)


@pytest.mark.parametrize(("content", "newer"), [(b'{"state": "melted"}', True), (b"<html>", False)])
def test_a_value_of_a_newer_center_is_told_as_one(content: bytes, newer: bool) -> None:
    """The address may be right then; text that is not data at all is from something else."""

    class Seen(msgspec.Struct):
        state: RunState

    with pytest.raises(CenterUnreachable, match="is the address right") as caught:
        Answer("http://a", 200, codec.JSON, content).decoded(Seen)
    assert ("newer than this program" in caught.value.detail) == newer
