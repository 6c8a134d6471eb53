"""Job documents as text: YAML or JSON, several in one file, and the difference of two. Pure.

Used by the command line, which reads files, and by centers, which show differences.
"""

from __future__ import annotations

from collections.abc import Hashable
from difflib import unified_diff
from typing import Any

import msgspec
import yaml

from skep.errors import InvalidInput
from skep.model.job import Job

#: Characters of one file; a document that needs more belongs into several.
FILE_LIMIT = 16 * 2**20


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # no types for yaml
    """Safe, and strict: a key that stands twice is an error, a date stays the text it is, and
    so does a key: `on` is the name of a field, not a yes."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the field {key.value!r} stands here twice", key.start_mark
                )
            seen.add(str(key.value))
            if key.tag == "tag:yaml.org,2002:bool":
                key.tag = "tag:yaml.org,2002:str"
        made: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        return made


_Loader.yaml_implicit_resolvers = {
    first: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:timestamp"]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # no types for yaml
    """Code of several lines stays readable."""


def _text(dumper: Any, text: str) -> Any:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def read_documents(text: str, name: str) -> list[Any]:
    """Every document of a file, in order; raises InvalidInput that names file and line.

    Documents stand one after another (`---` between them in YAML) or in a list.
    """
    if len(text) > FILE_LIMIT:
        raise InvalidInput(f"{name}: longer than {FILE_LIMIT} characters")
    try:
        # JSON is YAML but for tabs, so a file that is plainly JSON is read as that.
        found = [msgspec.json.decode(text)] if name.endswith(".json") else _yaml(text)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"{name}: not JSON: {error}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise InvalidInput(f"{name}: not YAML: {_words(error)}") from error
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
    """A job as people edit it: YAML, its fields in the order of the reference page."""
    plain = msgspec.to_builtins(job)
    return str(yaml.dump(plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100))


def difference(before: Job | None, after: Job | None, names: tuple[str, str]) -> str:
    """A unified diff of two documents; "" when they are the same."""
    old, new = (write_document(job).splitlines() if job else [] for job in (before, after))
    return "\n".join(unified_diff(old, new, *names, lineterm=""))
