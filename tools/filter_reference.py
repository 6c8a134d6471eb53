"""The reference page of filters, made from the field tables. Run by `tools/reference.py`."""

from __future__ import annotations

from collections.abc import Iterator

from skep.model.filter.fields import OPERATORS, Field, FieldTable, FieldType
from skep.model.filter.syntax import TERMS_LIMIT, TEXT_LIMIT, VALUES_LIMIT, Operator
from skep.wire.filter.tables import TABLES

EXAMPLE = (
    "state:failed,dead job:quotes host:*.example.com error:timeout since:2h "
    'duration:>30s "free text" -label:eu'
)
_INTRODUCTION = f"""\
A filter names the rows of a list that you want, in the API and on the command line; see [lists
and filters](../how-to/filters.md):

```
{EXAMPLE}
```

- Terms are separated by spaces and combined with AND. `-` before a term excludes what fits it.
- A term is `field:value`. Values separated by commas are alternatives: `state:dead,expired`.
- A term without a field is free text. It is searched in the fields that the table names.
- Quotes make one value of anything: `"a b"`, `uri:"a,b"`. In quotes, `*` and `..` mean
  themselves; write `\\"` for a quote and `\\\\` for a backslash. Text with a colon needs quotes.
- A row without a value fits no term and every excluded one: `-job:*` finds rows without a job.
- Limits: {TEXT_LIMIT:,} characters, {TERMS_LIMIT} terms, {VALUES_LIMIT} values in a term.
- `index: no` means that no index finds the rows on every database: they are searched one by one.

An unknown field, operator or value is the error `invalid_filter`; it names the column and what is
known there, the most similar first."""
_MEANINGS = {
    Operator.EQUALS: "equals; for `text`: contains",
    Operator.STARTS: "starts with",
    Operator.ENDS: "ends with",
    Operator.CONTAINS: "contains",
    Operator.ANY: "has any value",
    Operator.GREATER: "is more, or later",
    Operator.AT_LEAST: "is at least; also `a..`",
    Operator.LESS: "is less, or earlier",
    Operator.AT_MOST: "is at most; also `..b`",
    Operator.RANGE: "from a to b, both included",
}
_TYPES = {
    FieldType.WORD: "One of the words of the field. Case does not matter.",
    FieldType.NAME: "A name. Case matters.",
    FieldType.TEXT: "Text. The case of ASCII letters does not matter, that of others does. "
    "With a `*` the whole text is compared.",
    FieldType.HOST: "A host, compared in lower case. `*.example.com` finds subdomains only.",
    FieldType.INTEGER: "A whole number.",
    FieldType.DURATION: "`500ms`, `30s`, `5m`, `2h`, `7d`, `1w`, `1h30m`; without a unit: seconds.",
    FieldType.SIZE: "Bytes: `500`, `10kB`, `1.5MB`, `2GiB`.",
    FieldType.TIME: "`2026-11-18` (the whole day), `2026-11-18T12:30` (the whole minute), "
    "`2026-11-18T12:30:00+01:00`, `today`, `yesterday`, `now`, seconds since 1970, or `2h`: the "
    "moment two hours ago, so that `>2h` is the last two hours. Without a zone: UTC.",
    FieldType.SINCE: "A time, of which the start counts.",
    FieldType.UNTIL: "A time, of which the start counts; that moment does not fit any more.",
    FieldType.LABEL: "`eu`: the label is set; `team=a`: it has this value; `team=a*`: its value "
    "starts so.",
    FieldType.GROUP: "A failure group such as `0a1b2c3d4e5f@example.com`, or its part before the "
    "`@` for every host.",
}


def page(made: str) -> str:
    """The whole page."""
    lines = ["# Filters", "", made, "", *_INTRODUCTION.splitlines(), "", "## Operators", ""]
    lines += ["| written | meaning | types |", "|---|---|---|"]
    lines += [f"| `{one}` | {text} | {_types(one)} |" for one, text in _MEANINGS.items()]
    lines += ["", "## Types", "", "| type | values |", "|---|---|"]
    lines += [f"| {kind} | {_TYPES[kind]} |" for kind in FieldType]
    for table in TABLES.values():
        lines += _resource(table)
    return "\n".join([*lines, ""])


def _types(operator: Operator) -> str:
    return ", ".join(kind for kind, known in OPERATORS.items() if operator in known)


def _resource(table: FieldTable) -> Iterator[str]:
    yield from ("", f"## {table.resource}", "")
    yield f"Free text is searched in {_listed(table.text)}."
    yield from ("", "| field | type | index | meaning | examples |", "|---|---|---|---|---|")
    yield from map(_row, table.fields)


def _row(field: Field) -> str:
    names = ", ".join(f"`{name}`" for name in (field.name, *field.aliases))
    examples = " ".join(f"`{field.name}:{example}`" for example in field.examples)
    index = "yes" if field.indexed else "no"
    return f"| {names} | {field.type} | {index} | {field.help}{_words(field)} | {examples} |"


def _words(field: Field) -> str:
    if not field.words:
        return ""
    groups = [f"`{word}` ({', '.join(several)})" for word, several in field.groups.items()]
    return f" {', '.join([*(f'`{word}`' for word in field.words), *groups])}."


def _listed(names: tuple[str, ...]) -> str:
    *first, last = (f"`{name}`" for name in names)
    return f"{', '.join(first)} and {last}" if first else last
