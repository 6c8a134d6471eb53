"""Converts plain data to structs and reports all errors, each with its path. Pure.

msgspec stops at the first error; authors of documents want all of them. So structs, lists of
structs and unions with None are converted here, and msgspec converts the leaves.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from skep.runtime.value_errors import allowed_values, choices, in_words

_PLACE = re.compile(r" - at `\$(.*)`$")
SHOWN = 200


class DocumentProblem(msgspec.Struct, frozen=True):
    """A problem and its place in the document."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def fields_of(
    data: Any, kind: type[Any], path: str, problems: list[DocumentProblem]
) -> dict[str, Any]:
    """The valid fields of a struct; problems of the others are added to `problems`.

    A list with some valid entries is included, with None in place of the others.
    """
    if not isinstance(data, Mapping):
        problems.append(
            DocumentProblem(path, f"must be a mapping of fields, not {_kind_word(data)}")
        )
        return {}
    known = {field.name: field for field in msgspec.structs.fields(kind)}
    hints = get_type_hints(kind, include_extras=True)
    strange = [name for name in data if name not in known]
    problems += [DocumentProblem(_below(path, name), _unknown(name, known)) for name in strange]
    good: dict[str, Any] = {}
    for name, field in known.items():
        if name in data:
            before = len(problems)
            value = convert(data[name], hints[name], _below(path, name), problems)
            if len(problems) == before or isinstance(value, tuple):
                good[name] = value
        elif field.required:
            problems.append(DocumentProblem(_below(path, name), "is missing"))
    return good


def convert(data: Any, kind: Any, path: str, problems: list[DocumentProblem]) -> Any:
    """The value as its type; None, and a problem, when it is not valid."""
    bare = _bare(kind)
    if isinstance(data, Mapping):
        bare = _struct_in(bare)
    if data is not None and _is_struct(bare):
        before = len(problems)
        fields = fields_of(data, bare, path, problems)
        return bare(**fields) if len(problems) == before else None
    if (element := _element(bare)) and isinstance(data, list | tuple):
        if len(data) > (limit := _most(kind)):
            told = f"has {len(data)} entries; the limit is {limit}"
            problems.append(DocumentProblem(path, told))
        return tuple(convert(v, element, f"{path}[{n}]", problems) for n, v in enumerate(data))
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        problems.append(_problem(str(error), path, data, kind))
    return None


def _problem(text: str, path: str, data: Any, kind: Any) -> DocumentProblem:
    place = _PLACE.search(text)
    inner = place[1].replace("[...]", "") if place else ""
    message = _demand(_PLACE.sub("", text), None if inner else kind)
    shown = f"{data!r}"
    if not inner and isinstance(data, str | int | float) and len(shown) <= SHOWN:
        message = f"{message}; it is {shown}"
    elif not inner and isinstance(data, list | tuple | Mapping):
        message = f"{message}, not {_kind_word(data)}"
    return DocumentProblem(f"{path}{inner}", message)


def _demand(message: str, kind: Any) -> str:
    """What the value must be, in words; msgspec names types of the program."""
    meant = _meta(kind, "description")
    if meant and "regex" in message:
        return f"must be {meant}"
    allowed = allowed_values(kind)
    return f"must be {allowed}" if allowed else in_words(message).removeprefix("it ")


def _bare(kind: Any) -> Any:
    """Without annotations and without `| None`."""
    while hasattr(kind, "__metadata__"):
        kind = kind.__origin__
    if get_origin(kind) in {Union, UnionType}:
        kinds = [one for one in get_args(kind) if one is not NoneType]
        return _bare(kinds[0]) if len(kinds) == 1 else kind
    return kind


def _struct_in(kind: Any) -> Any:
    """The only struct of a union that a mapping can be; else the kind itself."""
    if get_origin(kind) not in {Union, UnionType}:
        return kind
    structs = [bare for one in get_args(kind) if _is_struct(bare := _bare(one))]
    return structs[0] if len(structs) == 1 else kind


def _meta(kind: Any, name: str) -> Any:
    found = (getattr(meta, name, None) for meta in getattr(kind, "__metadata__", ()))
    return next((value for value in found if value is not None), None)


def _most(kind: Any) -> int:
    limit: int | None = _meta(kind, "max_length")
    return sys.maxsize if limit is None else limit


def _element(kind: Any) -> Any:
    """The element type of a list or of a tuple of any length."""
    return get_args(kind)[0] if get_origin(kind) in {tuple, list} else None


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _below(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def _unknown(name: object, known: Mapping[str, Any]) -> str:
    return f"is not a known field; {choices(name, known)}"


def _kind_word(data: Any) -> str:
    words = {NoneType: "nothing", str: "text", list: "a list", bool: "yes or no", dict: "a mapping"}
    return words.get(type(data), "a number")
