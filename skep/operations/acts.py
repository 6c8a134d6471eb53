"""The contract of an act, and the registry of acts and resources. Run by centers.

An act is an object with traits; a center hands its acts over when it is built. This room never
compares the name of an act or of a resource.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from skep.errors import InvalidInput
from skep.model.filter.checked import CheckedFilter
from skep.model.filter.fields import FieldTable
from skep.model.filter.scoped import is_within
from skep.model.operations import Operation, OperationPart
from skep.model.people.scope import Scope
from skep.runtime.value_errors import explained
from skep.wire.filter.check import read_filter


class NoArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For acts without arguments."""


@dataclass(frozen=True, slots=True)
class ActTraits:
    """What centers and callers need to know about an act."""

    name: str
    resource: str
    #: One sentence.
    help: str
    #: It deletes or ends something: the caller must confirm the dry run.
    destroys: bool = False
    #: Only admins may use it.
    admin: bool = False
    #: Objects that are processed together.
    batch: int = 10
    #: Maximum number of objects per second.
    rate: int = 50
    #: Whether callers with a scope may use it, on objects inside the scope.
    scoped: bool = True
    #: It makes a file that callers can download.
    exports: bool = False
    #: Its arguments.
    arguments: type[msgspec.Struct] = NoArguments


@dataclass(frozen=True, slots=True)
class Batch:
    """A part of an operation to process."""

    operation: Operation
    part: OperationPart
    wanted: CheckedFilter
    arguments: Any
    #: Deadline, by the monotonic clock; what is left then goes into the next batch.
    deadline: float


class Act(Protocol):
    """Called with one batch after the other. `apply` also stores the results of the batch, in the
    same transaction if it can. After a crash it may get the same batch again, so applying it twice
    must have the same effect as once."""

    @property
    def traits(self) -> ActTraits: ...

    async def apply(self, batch: Batch) -> Operation:
        """Raises LostLease when another center has the operation, Unavailable when it must be
        retried."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of objects that acts are for."""

    name: str
    table: FieldTable
    #: A filter that always applies as well.
    always: str = ""

    def read(self, text: str, now: float) -> CheckedFilter:
        """Parse and check a filter; raises InvalidFilter."""
        wanted = read_filter(text, self.table, now)
        more = read_filter(self.always, self.table, now) if self.always else None
        terms = (*wanted.terms, *more.terms) if more else wanted.terms
        return msgspec.structs.replace(wanted, terms=terms)


class Registry:
    """The acts and resources of one center."""

    def __init__(self, resources: Sequence[Resource], acts: Iterable[Act]) -> None:
        self._resources = {one.name: one for one in resources}
        self._acts = {(one.traits.resource, one.traits.name): one for one in acts}

    def all(self) -> list[ActTraits]:
        """By resource and name."""
        return [self._acts[key].traits for key in sorted(self._acts)]

    def resource(self, name: str) -> Resource:
        """Raises InvalidInput, which names the known ones."""
        found = self._resources.get(name)
        if found is None:
            known = ", ".join(self._resources)
            raise InvalidInput(f"{name[:50]!r} is not a resource; use one of {known}")
        return found

    def is_within(self, operation: Operation, scope: Scope) -> bool:
        """Whether the filter of the operation can only have found objects inside the scope."""
        if not scope:
            return True
        asked = operation.asked
        try:
            wanted = self.resource(asked.resource).read(asked.filter, asked.moment)
        except InvalidInput:  # written by another version: not known to be inside
            return False
        return is_within(wanted, scope)

    def act(self, resource: str, name: str) -> Act:
        """Raises InvalidInput, which names those of the resource."""
        self.resource(resource)
        found = self._acts.get((resource, name))
        if found is None:
            known = ", ".join(act for of, act in sorted(self._acts) if of == resource)
            raise InvalidInput(f"{name[:50]!r} is not an act on {resource}; use one of {known}")
        return found


def read_arguments(traits: ActTraits, given: dict[str, Any]) -> Any:
    """The arguments of an act; raises InvalidInput."""
    try:
        return msgspec.convert(given, traits.arguments)
    except msgspec.ValidationError as error:
        # A rule about several arguments has words of its own.
        own = error.__cause__
        told = explained(error, given, traits.arguments, "argument")
        text = str(own) if isinstance(own, ValueError) else told
        raise InvalidInput(f"the arguments of {traits.name} are not valid: {text}") from error
