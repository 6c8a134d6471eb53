"""Writes the reference pages that are made from the code, or checks that they are up to date.

Run by `make docs` (`write`) and by the tests (`check`). Never edit a page that is made here.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from skep import errors, settings
from skep.cli.main import COMMANDS, skep
from skep.cli.terminal.exit_codes import MEANINGS
from skep.jobs.definitions.job_check import ELSEWHERE
from skep.model.jobs import job
from skep.model.jobs.app import AppLimits, AppPart
from skep.model.jobs.schedule import Schedule
from skep.model.pipelines import document as pipelines
from skep.model.user_code import CodeLimits
from tools import filter_reference, requirement_ids

FOLDER = Path(__file__).parent.parent / "docs" / "reference"
#: Maximum length of a default in a table; longer ones have a table of their own.
LONGEST_DEFAULT = 30
MADE = "<!-- Made by `make docs` from the code; edit the code. -->"


def settings_page() -> str:
    lines = ["# Settings", "", MADE, "", *_paragraphs(settings.__doc__), ""]
    lines += ["In a TOML file a room is a table: `[center]`, then `port = 8420`.", ""]
    lines += ["`data` (`SKEP_DATA`): the folder for everything that Skep keeps.", ""]
    for room in settings.SECTIONS:
        struct = getattr(settings.Settings(), room)
        lines += [f"## {room}", "", *_paragraphs(type(struct).__doc__), ""]
        lines += ["| setting | environment | default | meaning |", "|---|---|---|---|"]
        lines += [*_rows(room), ""]
    return "\n".join(lines)


def _rows(wanted: str) -> Iterator[str]:
    for room, field, default, description in settings.documented():
        if room == wanted:
            variable = f"{settings.PREFIX}_{room}_{field}".upper()
            shown = json.dumps(default)
            yield f"| `{room}.{field}` | `{variable}` | `{shown}` | {description} |"


def errors_page() -> str:
    lines = ["# Errors", "", MADE, ""]
    lines += ["An error of the API is problem+json. `code` is stable and never reused.", ""]
    lines += ["| code | status | retryable | title |", "|---|---|---|---|"]
    lines += [
        f"| `{error.code}` | {error.status} | {_yes_or_no(error.retryable)} | {error.title} |"
        for error in sorted(_all_errors(errors.SkepError), key=lambda error: error.code)
    ]
    return "\n".join([*lines, ""])


def cli_page() -> str:
    lines = ["# Command line", "", MADE, "", *_paragraphs(skep.help), ""]
    lines += ["Data goes to stdout; messages, progress and logs go to stderr. `--json` prints"]
    lines += ["one JSON document. Colors are for terminals, and never used with `NO_COLOR`.", ""]
    lines += ["## Exit codes", "", "| code | meaning |", "|---|---|"]
    lines += [f"| {code.value} | {text} |" for code, text in MEANINGS.items()]
    context = click.Context(skep, info_name="skep")
    for name in COMMANDS:
        if command := skep.get_command(context, name):
            lines += _command(command, click.Context(command, context, name))
    return "\n".join([*lines, ""])


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    """A section with usage, help and options; then one for each subcommand."""
    yield from ("", f"## {context.command_path}", "", "```")
    yield from (" ".join([context.command_path, *command.collect_usage_pieces(context)]), "```", "")
    yield from _paragraphs(command.help)
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    if options:
        yield from ("", "| option | meaning |", "|---|---|")
    for option in options:
        yield f"| {_names(option)} | {(option.help or '').replace('|', '/')}{_default(option)} |"
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from _command(below, click.Context(below, context, name))


#: Parts of a job's document, by their path.
JOB_PARTS: dict[str, type[msgspec.Struct]] = {
    "": job.Job,
    "settings": job.JobSettings,
    "downloader": job.Downloader,
    "downloader.limits": CodeLimits,
    "generators[]": job.Generator,
    "spider": job.SpiderPart,
    "app": AppPart,
    "app.limits": AppLimits,
    "schedule": Schedule,
    "placement": job.PlacementPart,
    "sinks[]": job.SinkPart,
}


#: Parts of a pipeline's document, by their path.
PIPELINE_PARTS: dict[str, type[msgspec.Struct]] = {
    "": pipelines.Pipeline,
    "inputs[]": pipelines.InputPart,
    "parse": pipelines.ParsePart,
    "trace": pipelines.TracePart,
    "trace.lookups[]": pipelines.LookupPart,
    "trace.record": pipelines.RecordPart,
    "trace.write_back": pipelines.WriteBackPart,
    "extras[]": pipelines.ExtraPart,
    "extras[].args": pipelines.ExtraArguments,
    "operations[]": pipelines.OperationPart,
    "operations[].outputs[]": pipelines.OutputPart,
    "operations[].outputs[].fields[]": pipelines.OutputField,
    "retry": pipelines.RetryPart,
    "batch": pipelines.BatchPart,
    "placement": pipelines.PlacementPart,
    "tests[]": pipelines.TestPart,
    "tests[].cases[]": pipelines.CasePart,
    "tests[].cases[].outputs[]": pipelines.ExpectedOutput,
}


def jobs_page() -> str:
    lines = ["# Job documents", "", MADE, ""]
    lines += ["A job is one document, YAML or JSON. Fields that are not given have their default."]
    lines += ["How to keep and run one: [jobs](../how-to/jobs.md).", ""]
    return "\n".join([*lines, *_parts(JOB_PARTS)])


def pipelines_page() -> str:
    lines = ["# Pipeline documents", "", MADE, ""]
    lines += ["A pipeline is one document, YAML or JSON. Fields that are not given have their"]
    lines += [
        "default. How to write one: [pipelines](../how-to/pipelines.md). Conditions and values"
    ]
    lines += ["are [expressions](expressions.md).", ""]
    return "\n".join([*lines, *_parts(PIPELINE_PARTS)])


def _parts(parts: dict[str, type[msgspec.Struct]]) -> list[str]:
    lines: list[str] = []
    for path, part in parts.items():
        lines += [f"## {path or 'The document'}", "", *_paragraphs(part.__doc__), ""]
        lines += ["| field | default | meaning |", "|---|---|---|"]
        lines += [*_fields(part), ""]
    return lines


def requirements_page() -> str:
    return requirement_ids.page(MADE)


def filters_page() -> str:
    return filter_reference.page(MADE)


def _fields(part: type[msgspec.Struct]) -> Iterator[str]:
    words = _comments(part)
    for field in msgspec.structs.fields(part):
        if part is job.JobSettings and field.name in ELSEWHERE:
            continue
        meaning = words.get(field.name) or _described(field.type)
        yield f"| `{field.name}` | {_default_of(field)} | {meaning.replace('|', '/')} |"


def _described(kind: Any) -> str:
    """The description in the annotation of a type; "" = there is none."""
    parts = getattr(kind, "__metadata__", ())
    texts = (part.description for part in parts if isinstance(part, msgspec.Meta))
    return next((text for text in texts if text), "")


def _default_of(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "needed"
    if field.default_factory is not msgspec.NODEFAULT:
        return "`{}`"
    shown = json.dumps(msgspec.to_builtins(field.default))
    return (
        "-" if shown in {'""', "null", "[]", "{}"} or len(shown) > LONGEST_DEFAULT else f"`{shown}`"
    )


def _comments(part: type[msgspec.Struct]) -> dict[str, str]:
    """The `#:` comments of fields, including inherited fields."""
    words: dict[str, str] = {}
    for kind in reversed(part.__mro__):
        if not (issubclass(kind, msgspec.Struct) and kind.__module__.startswith("skep.")):
            continue
        said: list[str] = []
        for line in inspect.getsource(kind).splitlines():
            text = line.strip()
            if text.startswith("#:"):
                said.append(text.removeprefix("#:").strip())
                continue
            if said and (found := re.match(r"(\w+):", text)):
                words[found[1]] = " ".join(said)
            said = []
    return words


def _names(option: click.Option) -> str:
    kind = option.type.name.removesuffix(" range")
    shown = {"integer": "NUMBER", "float": "NUMBER", "directory": "DIR"}.get(kind, kind.upper())
    value = "" if option.is_flag else f" {option.metavar or shown}"
    return ", ".join(f"`{name}{value}`" for name in option.opts)


def _default(option: click.Option) -> str:
    plain = isinstance(option.default, int | float) and not option.is_flag
    return f" Default: {option.default}." if plain else ""


def _yes_or_no(value: bool) -> str:
    return "yes" if value else "no"


def _all_errors(error: type[errors.SkepError]) -> Iterator[type[errors.SkepError]]:
    yield error
    for child in error.__subclasses__():
        yield from _all_errors(child)


def _paragraphs(text: str | None) -> list[str]:
    return [line.strip() for line in (text or "").strip().splitlines()]


PAGES = {
    "settings.md": settings_page,
    "errors.md": errors_page,
    "cli.md": cli_page,
    "jobs.md": jobs_page,
    "pipelines.md": pipelines_page,
    "filters.md": filters_page,
    "requirements.md": requirements_page,
}


def main(task: str) -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, make in PAGES.items():
        page = FOLDER / name
        if task == "write":
            page.write_text(make())
        elif not page.exists() or page.read_text() != make():
            sys.stderr.write(f"docs/reference/{name} is out of date; run `make docs`\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
