"""Job documents as text: YAML or JSON, several in one file, and the difference of two. Pure.

Used by the command line, which reads files, and by centers, which show differences.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from difflib import unified_diff
from typing import Any

import msgspec
import yaml

from skep.errors import InvalidInput
from skep.model.jobs.job import Job
from skep.model.jobs.nesting_depth import too_deep

#: Maximum number of characters of one file; split larger documents.
FILE_LIMIT = 16 * 2**20
#: Maximum number of values that aliases and merge keys may add to the written ones.
REPEATED_LIMIT = 100_000
#: Maximum number of characters of one number; every 64-bit number is shorter.
NUMBER_LIMIT = 100
_INTEGERS = range(-(2**63), 2**64)
#: What the constructors of PyYAML raise for a value that does not fit its tag.
_UNFIT = (ValueError, TypeError, LookupError, AttributeError, OverflowError)


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # no types for yaml
    """Safe and strict: a repeated key is an error, and dates and keys stay text: `on` is the name
    of a field, not a boolean."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the field {key.value!r} is repeated", key.start_mark
                )
            seen.add(str(key.value))
            if key.tag == "tag:yaml.org,2002:bool":
                key.tag = "tag:yaml.org,2002:str"
        made: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        return made

    def get_node(self) -> Any:
        return _bounded(super().get_node())

    def construct_yaml_int(self, node: Any) -> int:
        _check_length(node)
        made = int(super().construct_yaml_int(node))
        if made not in _INTEGERS:
            raise _refused(node, "the integer does not fit into 64 bits; put it in quotes")
        return made

    def construct_yaml_float(self, node: Any) -> float:
        _check_length(node)
        return float(super().construct_yaml_float(node))


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_yaml_float)


def _refused(node: Any, why: str) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, why, node.start_mark)


def _check_length(node: Any) -> None:
    if isinstance(node.value, str) and len(node.value) > NUMBER_LIMIT:
        raise _refused(node, f"a number has {len(node.value)} characters; put it in quotes")


def _bounded(root: Any) -> Any:
    """Return the node; raises a YAML error when aliases and merge keys repeat too much of it."""
    sizes: dict[int, int] = {}
    if root is not None and _expanded(root, sizes) - len(sizes) > REPEATED_LIMIT:
        why = f"aliases and merge keys repeat more than {REPEATED_LIMIT} values; use fewer aliases"
        raise _refused(root, why)
    return root


def _expanded(node: Any, sizes: dict[int, int]) -> int:
    """The number of nodes with every alias expanded."""
    if id(node) in sizes:
        if not sizes[id(node)]:
            raise _refused(node, "an alias refers to the value that contains it")
        return sizes[id(node)]
    sizes[id(node)] = 0
    size = 1 + sum(_expanded(part, sizes) for part in _parts(node))
    sizes[id(node)] = size
    return size


def _parts(node: Any) -> Iterator[Any]:
    if isinstance(node, yaml.MappingNode):
        for pair in node.value:
            yield from pair
    elif isinstance(node, yaml.SequenceNode):
        yield from node.value


_Loader.yaml_implicit_resolvers = {
    first: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:timestamp"]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # no types for yaml
    """Writes code of several lines as a block."""


def _text(dumper: Any, text: str) -> Any:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def read_documents(text: str, name: str) -> list[Any]:
    """Every document of a file, in order; raises InvalidInput, which names file and line.

    Documents follow each other (separated by `---` in YAML) or are entries of a list.
    """
    if len(text) > FILE_LIMIT:
        raise InvalidInput(f"{name}: the file exceeds {FILE_LIMIT} characters; split it")
    try:
        # YAML includes JSON except for tabs, so a .json file is read as JSON.
        found = [msgspec.json.decode(text)] if name.endswith(".json") else _yaml(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InvalidInput(f"{name}: not JSON: {error}") from error
    except RecursionError as error:
        raise InvalidInput(f"{name}: not YAML: nested too deeply") from error
    except yaml.YAMLError as error:
        raise InvalidInput(f"{name}: not YAML: {_words(error)}") from error
    except _UNFIT as error:
        raise InvalidInput(f"{name}: not YAML: a value does not fit its tag: {error}") from error
    flat: list[Any] = []
    for document in found:
        flat += document if isinstance(document, list) else [document]
    return [document for document in flat if document is not None]


def _yaml(text: str) -> list[Any]:
    return list(yaml.load_all(text, Loader=_Loader))


def _words(error: BaseException) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}: " if mark else ""
    return f"{where}{getattr(error, 'problem', None) or error}"


def write_document(job: Job | dict[str, Any]) -> str:
    """A job as YAML, with the fields in the order of the reference page.

    Jobs stored before nesting was limited may be too deep for YAML: they are written as JSON.
    """
    plain = msgspec.to_builtins(job)
    if too_deep(plain):
        return msgspec.json.format(msgspec.json.encode(plain), indent=1).decode()
    return str(yaml.dump(plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100))


def difference(before: Job | None, after: Job | None, names: tuple[str, str]) -> str:
    """A unified diff of two documents; "" when they are equal."""
    old, new = (write_document(job).splitlines() if job else [] for job in (before, after))
    return "\n".join(unified_diff(old, new, *names, lineterm=""))
