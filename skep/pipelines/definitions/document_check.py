"""Checks pipeline documents and reports all problems together, each with its path. Pure.

Used by centers, and by `skep pipeline lint` without the names that a center knows. User code that
a document names is never executed here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from skep.errors import InvalidInput, InvalidPipeline
from skep.jobs.definitions.struct_decoding import DocumentProblem, fields_of
from skep.model.jobs.nesting_depth import DEPTH_LIMIT, too_deep
from skep.model.pipelines.document import ExtraPart, ParsePart, Pipeline, TestPart, TracePart
from skep.pipelines.definitions.compiled_texts import conditions, values
from skep.pipelines.definitions.short_forms import spelled_out
from skep.pipelines.expressions.expression import Expression
from skep.pipelines.expressions.patterns import BadPattern, compile_pattern
from skep.pipelines.expressions.values import compile_value
from skep.runtime.clock import Clock
from skep.runtime.value_errors import choices

_CREDENTIALS = re.compile(r"[A-Za-z][\w+.-]*://[^/\s@]*:[^/\s@]+@")
Problems = list[DocumentProblem]
#: Fields of a message that the engine fills; an extra must not overwrite them.
RESERVED = frozenset({"common", "trace", "trace_id"})


class KnownNames(msgspec.Struct, frozen=True):
    """The named resources of a center. A document may refer to these only."""

    inputs: frozenset[str] = frozenset()
    stores: frozenset[str] = frozenset()
    servers: frozenset[str] = frozenset()
    methods: frozenset[str] = frozenset()
    targets: frozenset[str] = frozenset()


class PipelineChecker:
    """Checks documents; without `known` the names of resources are not checked."""

    def __init__(self, clock: Clock, known: KnownNames | None = None) -> None:
        self._clock = clock
        self._known = known

    def check(self, document: Any) -> Pipeline:
        """The pipeline; raises InvalidPipeline with one line per problem."""
        pipeline, problems = self.judge(document)
        if pipeline is None:
            raise InvalidPipeline("\n".join(map(str, problems)))
        return pipeline

    def judge(self, document: Any) -> tuple[Pipeline | None, Problems]:
        """The pipeline, or None and all problems. Takes plain data or a `Pipeline`."""
        plain = msgspec.to_builtins(document) if isinstance(document, Pipeline) else document
        if deep := too_deep(plain):
            return None, [DocumentProblem(deep, f"is nested deeper than {DEPTH_LIMIT} levels")]
        problems: Problems = []
        full = spelled_out(plain)
        fields = fields_of(full, Pipeline, "", problems)
        problems += self._compiled(full)
        problems += _structure(fields)
        problems += _whole(plain)
        if self._known is not None:
            problems += _references(fields, self._known)
        return (None, problems) if problems else (Pipeline(**fields), [])

    def _compiled(self, document: Any) -> Iterator[DocumentProblem]:
        for path, text in conditions(document):
            yield from _tried(path, Expression, text, self._clock)
        for path, raw in values(document):
            yield from _tried(path, compile_value, raw, self._clock)


def present(path: str, parts: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """(path, part) of the valid parts; None stands for an invalid one."""
    return ((f"{path}[{n}]", part) for n, part in enumerate(parts) if part is not None)


def _tried(path: str, check: Callable[..., object], *given: Any) -> Iterator[DocumentProblem]:
    try:
        check(*given)
    except InvalidInput as error:
        yield DocumentProblem(path, error.detail)
    except BadPattern as error:
        yield DocumentProblem(path, str(error))


def _whole(document: Any) -> Iterator[DocumentProblem]:
    """Problems of the document as it was given."""
    if isinstance(document, Mapping) and document.get("user_id") and not document.get("trace"):
        yield DocumentProblem("user_id", "is compared with `trace.dmp_user_id`; add `trace`")
    yield from _passwords(document, "")


def _passwords(part: Any, path: str) -> Iterator[DocumentProblem]:
    if isinstance(part, str) and _CREDENTIALS.search(part):
        yield DocumentProblem(path, "contains a URL with a password; refer to a connection by name")
    elif isinstance(part, Mapping):
        for name, inner in part.items():
            yield from _passwords(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(part, list | tuple):
        for number, inner in enumerate(part):
            yield from _passwords(inner, f"{path}[{number}]")


def _structure(fields: Mapping[str, Any]) -> Iterator[DocumentProblem]:
    """What types cannot say."""
    yield from _filled(fields)
    if parse := fields.get("parse"):
        yield from _parse(parse, "parse")
    for path, one in present("inputs", fields.get("inputs", ())):
        if one.parse:
            yield from _parse(one.parse, f"{path}.parse")
    yield from _doubled("inputs", "name", fields)
    yield from _doubled("extras", "field", fields)
    yield from _doubled("tests", "name", fields)
    for path, extra in present("extras", fields.get("extras", ())):
        yield from _extra(extra, path)
    if trace := fields.get("trace"):
        yield from _trace(trace)
    for path, test in present("tests", fields.get("tests", ())):
        yield from _test(test, path, fields)


def _filled(fields: Mapping[str, Any]) -> Iterator[DocumentProblem]:
    for name in ("inputs", "operations"):
        if fields.get(name) == ():
            yield DocumentProblem(name, "is empty; it needs at least one entry")
    for path, operation in present("operations", fields.get("operations", ())):
        if not operation.outputs:
            yield DocumentProblem(f"{path}.outputs", "is empty; it needs at least one output")


def _parse(part: ParsePart, path: str) -> Iterator[DocumentProblem]:
    needed = {"csv": "columns", "regex": "pattern"}
    for kind, name in needed.items():
        given = bool(getattr(part, name))
        if part.kind == kind and not given:
            yield DocumentProblem(f"{path}.{name}", f"is missing; {kind} needs it")
        elif part.kind != kind and given:
            yield DocumentProblem(f"{path}.{name}", f"is not used by {part.kind}; remove it")
    if part.pattern:
        yield from _tried(f"{path}.pattern", _check_groups, part.pattern)


def _check_groups(pattern: str) -> None:
    if not compile_pattern(pattern).groupindex:
        raise InvalidInput("has no named group; write (?P<name>...)")


def _doubled(name: str, key: str, fields: Mapping[str, Any]) -> Iterator[DocumentProblem]:
    seen: set[str] = set()
    for path, part in present(name, fields.get(name, ())):
        value = getattr(part, key)
        if value in seen:
            yield DocumentProblem(f"{path}.{key}", f"{value!r} is used twice")
        seen.add(value)


def _extra(part: ExtraPart, path: str) -> Iterator[DocumentProblem]:
    given = [name for name in ("server", "method", "func") if getattr(part, name)]
    if len(given) != 1:
        said = " and ".join(given) or "none of them"
        told = f"needs exactly one of server, method and func; it has {said}"
        yield DocumentProblem(path, told)
    if part.field in RESERVED:
        yield DocumentProblem(f"{path}.field", f"{part.field!r} is filled by the pipeline itself")


def _trace(part: TracePart) -> Iterator[DocumentProblem]:
    names = [lookup.name or lookup.store for lookup in part.lookups]
    if len(set(names)) < len(names):
        yield DocumentProblem("trace.lookups", "two look-ups have one name; set `name`")
    for number, name in enumerate(part.write_back.found_by if part.write_back else ()):
        if name not in names:
            told = f"there is no look-up {name!r}; {choices(name, names)}"
            yield DocumentProblem(f"trace.write_back.found_by[{number}]", told)


def _test(test: TestPart, path: str, fields: Mapping[str, Any]) -> Iterator[DocumentProblem]:
    inputs = {one.name for one in fields.get("inputs", ()) if one}
    targets = {
        output.target
        for operation in fields.get("operations", ())
        if operation
        for output in operation.outputs
    }
    for inner, case in present(f"{path}.cases", test.cases):
        if (case.message is None) == (case.raw is None):
            yield DocumentProblem(inner, "needs exactly one of message and raw")
        if case.message is not None and not _encodable(case.input, fields):
            yield DocumentProblem(f"{inner}.message", "its parser reads text; use raw")
        if case.input and case.input not in inputs:
            yield DocumentProblem(f"{inner}.input", f"there is no input {case.input!r}")
        for place, output in present(f"{inner}.outputs", case.outputs or ()):
            if output.target not in targets:
                told = f"there is no output {output.target!r}; {choices(output.target, targets)}"
                yield DocumentProblem(f"{place}.target", told)


def _encodable(name: str, fields: Mapping[str, Any]) -> bool:
    """Whether a message given as data can be written for its parser."""
    inputs = [one for one in fields.get("inputs", ()) if one]
    source = next((one for one in inputs if name in {"", one.name}), None)
    part = (source.parse if source else None) or fields.get("parse")
    return part is None or part.kind in {"json", "msgpack"}


def _references(fields: Mapping[str, Any], known: KnownNames) -> Iterator[DocumentProblem]:
    for path, name, kind, names in _named(fields, known):
        if name and name not in names:
            yield DocumentProblem(path, f"there is no {kind} {name!r}; {choices(name, names)}")


def _named(
    fields: Mapping[str, Any], known: KnownNames
) -> Iterator[tuple[str, str, str, frozenset[str]]]:
    """(path, name, what it is, known names) of each reference."""
    for path, one in present("inputs", fields.get("inputs", ())):
        yield f"{path}.name", one.name, "input", known.inputs
    for path, name in _stores(fields.get("trace")):
        yield path, name, "store", known.stores
    for path, extra in present("extras", fields.get("extras", ())):
        yield f"{path}.server", extra.server, "query server", known.servers
        yield f"{path}.method", extra.method, "method", known.methods
    for path, operation in present("operations", fields.get("operations", ())):
        for inner, output in present(f"{path}.outputs", operation.outputs):
            yield f"{inner}.target", output.target, "output", known.targets


def _stores(trace: TracePart | None) -> Iterator[tuple[str, str]]:
    if trace is None:
        return
    for path, lookup in present("trace.lookups", trace.lookups):
        yield f"{path}.store", lookup.store
    for name in ("record", "write_back"):
        if part := getattr(trace, name):
            yield f"trace.{name}.store", part.store
