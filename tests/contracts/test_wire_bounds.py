"""S8: every list, number and text of a message has a bound, in whatever it contains.

Generated from the messages themselves: a field without a bound fails here, by its name.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from msgspec import inspect

from skep.center.app import api_table
from skep.center.http.endpoint import Endpoint
from skep.wire import messages

#: What every store keeps as a number.
LARGEST = 2**63 - 1
SIZED = (
    inspect.BytesType,
    inspect.ListType,
    inspect.VarTupleType,
    inspect.SetType,
    inspect.DictType,
)
MESSAGES = [
    kind
    for kind in vars(messages).values()
    if isinstance(kind, type)
    and issubclass(kind, msgspec.Struct)
    and kind.__module__ == messages.__name__
]


def unbounded(kind: inspect.Type, place: str, seen: set[type]) -> Iterator[str]:
    """Places in a type that take more than any store or memory can hold."""
    if isinstance(kind, inspect.StructType):
        if kind.cls in seen:
            return
        seen.add(kind.cls)
        for field in kind.fields:
            yield from unbounded(field.type, f"{kind.cls.__name__}.{field.name}", seen)
        return
    if is_unbounded(kind):
        yield f"{place}: {type(kind).__name__}"
    for one in inside(kind):
        yield from unbounded(one, f"{place}[]", seen)


def inside(kind: inspect.Type) -> list[inspect.Type]:
    """Types that a list, a map or a union is made of."""
    names = ("item_type", "key_type", "value_type", "type")
    single = [getattr(kind, name) for name in names if hasattr(kind, name)]
    return [*single, *getattr(kind, "types", ()), *getattr(kind, "item_types", ())]


def is_unbounded(kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.IntType):
        return _least(kind) < -LARGEST - 1 or _most(kind) > LARGEST
    if isinstance(kind, inspect.FloatType):
        return _least(kind) == -float("inf") or _most(kind) == float("inf")
    if isinstance(kind, inspect.StrType):
        return kind.max_length is None and kind.pattern is None
    if isinstance(kind, SIZED):
        return kind.max_length is None
    return isinstance(kind, inspect.AnyType)


def _least(kind: inspect.IntType | inspect.FloatType) -> float:
    bounds = [bound for bound in (kind.ge, kind.gt) if bound is not None]
    return max(bounds, default=-float("inf"))


def _most(kind: inspect.IntType | inspect.FloatType) -> float:
    bounds = [bound for bound in (kind.le, kind.lt) if bound is not None]
    return min(bounds, default=float("inf"))


@pytest.mark.parametrize("message", MESSAGES, ids=lambda kind: kind.__name__)
def test_everything_in_a_message_has_a_bound(message: type[msgspec.Struct]) -> None:
    """S8: what an agent (or a center) says cannot be larger than its receiver can take."""
    assert list(unbounded(inspect.type_info(message), "", set())) == []


#: Judged by code with a sentence of its own: `jobs.validate` and `jobs.depth`.
JUDGED = {
    ("POST", "/api/v1/runs/{run}/requests"): ("takes: ListType", "NewRequest."),
    ("POST", "/requestqueue/{identity}"): ("takes: ListType", "NewRequest."),
    ("POST", "/requestqueue/{identity}/turn"): ("NewRequest.", "FoundItem.data[]: AnyType"),
    # By the type of the act's own arguments.
    ("POST", "/api/v1/operations"): ("StartOperation.arguments[]: AnyType",),
    ("PUT", "/api/v1/jobs/{job}"): ("takes: DictType", "takes[]: AnyType"),
}
ROUTES = [(row, what) for row in api_table() for what in ("takes", "asks") if getattr(row, what)]


@pytest.mark.parametrize(
    ("row", "what"), ROUTES, ids=lambda value: getattr(value, "path", str(value))
)
def test_every_list_and_number_of_a_call_has_a_bound(row: Endpoint, what: str) -> None:
    """S8: people, spiders and agents; a text is bounded by the body, or by the URL."""
    found = unbounded(inspect.type_info(getattr(row, what)), what, set())
    judged = JUDGED.get((row.method, row.path), ())
    left = [one for one in found if not one.endswith(": StrType") and not one.startswith(judged)]
    assert left == []
