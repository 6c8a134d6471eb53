"""The form beside the YAML of a job: fields for the options that most jobs set. Pure.

The YAML is the document; the form shows parts of it and writes them back, and leaves everything
else in it as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from skep.errors import InvalidInput
from skep.portal.show.forms import Form, FormField

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Section:
    """Fields of one part of the document. `part` is its name in the document, "" = the top."""

    key: str
    part: str
    schema: str
    names: tuple[str, ...]


GENERAL = Section(
    "job_editor.general", "", "Job", ("note", "customer", "priority", "enabled", "labels")
)
SOURCES = {
    "requests": Section("job_editor.requests", "", "Job", ("requests",)),
    "spider": Section(
        "job_editor.spider", "spider", "SpiderPart", ("path", "arguments", "restarts")
    ),
    "app": Section(
        "job_editor.app",
        "app",
        "AppPart",
        ("command", "package", "image", "restart", "environment"),
    ),
}
SCHEDULE = Section(
    "job_editor.schedule",
    "schedule",
    "Schedule",
    ("cron", "every", "after", "zone", "overlap", "catch_up", "grace"),
)
SETTINGS = Section(
    "job_editor.settings",
    "settings",
    "RunSettings",
    ("retries", "time_limit", "host_concurrency", "host_delay", "robots"),
)
PLACEMENT = Section(
    "job_editor.placement", "placement", "PlacementPart", ("strategy", "n", "group")
)
#: Lists of texts, written with one entry in a line.
_LISTS = frozenset({"requests", "app.command", "schedule.after"})
#: A part that may be written as one text: the field that it means.
_SHORT = {"schedule": "cron", "spider": "path"}


@dataclass(frozen=True, slots=True)
class ShownSection:
    key: str
    form: Form


def kind_of_document(document: Mapping[str, Any]) -> str:
    return next((kind for kind in ("app", "spider") if document.get(kind)), "requests")


def shown_sections(description: Mapping[str, Any], document: Document) -> list[ShownSection]:
    """The form of a document; `description` is that of the API."""
    return [
        ShownSection(one.key, Form(_fields(one, description, document)))
        for one in sections_of(document)
    ]


def sections_of(document: Mapping[str, Any]) -> tuple[Section, ...]:
    source = SOURCES[kind_of_document(document)]
    return (GENERAL, source, SCHEDULE, SETTINGS, PLACEMENT)


def _fields(
    section: Section, description: Mapping[str, Any], document: Document
) -> Sequence[FormField]:
    values = _part(document, section.part)
    form = Form.of(description, section.schema, values, section.names)
    start = f"{section.part}." if section.part else ""
    return [_named(one, f"{start}{one.name}", values.get(one.name)) for one in form.fields]


def _named(one: FormField, name: str, value: Any) -> FormField:
    named = replace(one, name=name, required=False)
    if name in _LISTS and (value is None or _is_texts(value)):
        return replace(named, sort="lines", value="\n".join(value or ()), default="")
    return named


def _is_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(
        isinstance(one, str) and "\n" not in one for one in value
    )


def _part(document: Mapping[str, Any], part: str) -> dict[str, Any]:
    found = document.get(part) if part else document
    if isinstance(found, str) and part in _SHORT:
        return {_SHORT[part]: found}
    return dict(found) if isinstance(found, Mapping) else {}


def merged(
    description: Mapping[str, Any], document: Document, given: Mapping[str, Sequence[str]]
) -> Document:
    """The document with the values of the submitted form. Raises InvalidInput."""
    result = dict(document)
    for section in sections_of(document):
        values = _part(result, section.part)
        for one in _fields(section, description, document):
            _take(values, one, section, given.get(one.name, []))
        if not section.part:
            result = values
        elif values:
            result[section.part] = values
        else:
            result.pop(section.part, None)
    return result


def _take(values: dict[str, Any], one: FormField, section: Section, texts: Sequence[str]) -> None:
    """Put one value into its part; what is empty or the default is left out."""
    name = one.name.removeprefix(f"{section.part}.")
    if one.sort == "switch":
        if bool(texts) != bool(one.default):
            values[name] = bool(texts)
        elif name in values:
            del values[name]
        return
    text = texts[0].strip() if texts else ""
    if not text:
        values.pop(name, None)
    else:
        values[name] = _value(one, text)


def _value(one: FormField, text: str) -> Any:
    if one.name in _LISTS and not text.startswith("["):
        return [line.strip() for line in text.splitlines() if line.strip()]
    if one.name in _LISTS:
        return _json(one, text)
    # A list is read as JSON, everything else as its field says.
    return Form([one]).read({one.name: [text.replace("\r\n", "\n")]})[one.name]


def _json(one: FormField, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"{one.name}: {text[:100]!r} is not valid JSON") from error
