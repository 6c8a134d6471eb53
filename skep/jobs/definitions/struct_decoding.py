"""From plain data to structs, with every error at once and the path of each. Pure.

msgspec stops at the first error; people who write documents want to see all of them. So
structs, lists of structs and unions with None are walked here, and only the leaves are
left to msgspec.
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
    """What is wrong, and where in the document."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def fields_of(
    data: Any, kind: type[Any], path: str, faults: list[DocumentProblem]
) -> dict[str, Any]:
    """The fields of a struct that are there and good; what is not goes into `faults`.

    A list of which a part is good is there too, with None in the other places.
    """
    if not isinstance(data, Mapping):
        faults.append(DocumentProblem(path, f"must be a mapping of fields, not {_kind_word(data)}"))
        return {}
    known = {field.name: field for field in msgspec.structs.fields(kind)}
    hints = get_type_hints(kind, include_extras=True)
    strange = [name for name in data if name not in known]
    faults += [DocumentProblem(_below(path, name), _unknown(name, known)) for name in strange]
    good: dict[str, Any] = {}
    for name, field in known.items():
        if name in data:
            before = len(faults)
            value = convert(data[name], hints[name], _below(path, name), faults)
            if len(faults) == before or isinstance(value, tuple):
                good[name] = value
        elif field.required:
            faults.append(DocumentProblem(_below(path, name), "is missing"))
    return good


def convert(data: Any, kind: Any, path: str, faults: list[DocumentProblem]) -> Any:
    """The value as its type; None, and a fault, when it is not one."""
    bare = _bare(kind)
    if isinstance(data, Mapping):
        bare = _struct_in(bare)
    if data is not None and _is_struct(bare):
        before = len(faults)
        fields = fields_of(data, bare, path, faults)
        return bare(**fields) if len(faults) == before else None
    if (element := _element(bare)) and isinstance(data, list | tuple):
        if len(data) > (limit := _most(kind)):
            faults.append(DocumentProblem(path, f"has {len(data)} entries; {limit} is the limit"))
        return tuple(convert(v, element, f"{path}[{n}]", faults) for n, v in enumerate(data))
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        faults.append(_problem(str(error), path, data, kind))
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
    """What the value must be, in words; validation names types of the program."""
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
    """The one struct that a mapping can be meant as; else the kind itself."""
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
    """What a list or a tuple of any length is made of."""
    return get_args(kind)[0] if get_origin(kind) in {tuple, list} else None


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _below(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def _unknown(name: object, known: Mapping[str, Any]) -> str:
    return f"there is no such field; {choices(name, known)}"


def _kind_word(data: Any) -> str:
    words = {NoneType: "nothing", str: "text", list: "a list", bool: "yes or no", dict: "a mapping"}
    return words.get(type(data), "a number")
