"""Checks job documents and reports all problems together. Used by centers, and by `skep job lint`
with fewer checks.

The code in a document is never executed here: Python is parsed, shell is read by `sh -n`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from skep.downloaders.schemes import known_kinds, known_schemes
from skep.errors import InvalidInput, InvalidJob, SkepError
from skep.jobs.apps.app_check import app_problems
from skep.jobs.apps.secrets import AppSecrets
from skep.jobs.definitions.code_check import check_generator, check_source
from skep.jobs.definitions.code_parse import parse_python
from skep.jobs.definitions.jobs_folder import inside
from skep.jobs.definitions.masked_jobs import masked_problems
from skep.jobs.definitions.struct_decoding import DocumentProblem, fields_of
from skep.jobs.endings.notices import problems_of
from skep.jobs.generators.sql_source import check_sql
from skep.jobs.request_validation import PLAIN, Validator, check_header, strategy_problem
from skep.model.downloader_kinds import BUILT_IN, downloader_kind
from skep.model.fleet.placement import Placement
from skep.model.jobs.generator_progress import PART_NAME
from skep.model.jobs.job import (
    Downloader,
    Generator,
    Job,
    JobSettings,
    SinkPart,
    SpiderPart,
)
from skep.model.jobs.nesting_depth import DEPTH_LIMIT, too_deep
from skep.model.jobs.schedule import Schedule, cron_fields, problems_in
from skep.model.request import Offered
from skep.model.run import RunSettings
from skep.streams.host_rules import UNCONNECTED, JobLimits
from skep.streams.registry import open_sink

#: Kinds of downloader that every center has.
KINDS = tuple(kind.name for kind in BUILT_IN)
UNSAID = RunSettings()
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_FILE = re.compile(r"(?!/)[^\0:]+\.py(:[A-Za-z_]\w*)?")
#: Run settings that have a different place in a document.
ELSEWHERE = {
    "priority": "at the top of the document",
    "downloader": "at the top of the document",
    "placement": "at the top of the document",
    "code": "under `downloader`",
    "curl": "under `downloader`, as `options`",
}


class Checker:
    """Checks documents against what this center supports; without `folder` and with all kinds,
    against what any center may support."""

    def __init__(
        self,
        validator: Validator,
        kinds: Iterable[str] = KINDS,
        folder: Path | None = None,
        secrets: AppSecrets | None = None,
        limits: JobLimits = UNCONNECTED,
    ) -> None:
        self._validator = validator
        self._kinds = tuple(kinds)
        self._folder = folder
        self._secrets = secrets
        self._limits = limits

    def check(self, document: Any) -> Job:
        """The job; raises InvalidJob with one line per problem. Blocks (it reads files and starts
        `sh`): call it in a thread."""
        job, problems = self.judge(document)
        if job is None:
            raise InvalidJob("\n".join(map(str, problems)))
        return job

    def judge(self, document: Any) -> tuple[Job | None, list[DocumentProblem]]:
        """The job, or None and all problems."""
        if deep := too_deep(document):
            return None, [DocumentProblem(deep, f"is nested deeper than {DEPTH_LIMIT} levels")]
        problems: list[DocumentProblem] = [*masked_problems(document)]
        fields = fields_of(_spelled_out(document), Job, "", problems)
        self._downloader(fields.get("downloader"), problems)
        self._settings(fields, problems)
        _strategy(fields.get("placement"), problems)
        kind = _kind_of(fields)
        self._requests(fields.get("requests", ()), "requests", problems, kind)
        for number, generator in _good(fields.get("generators", ())):
            self._generator(generator, f"generators[{number}]", problems, kind)
        _generator_names(fields.get("generators", ()), problems)
        self._spider(fields.get("spider"), problems)
        for number, sink in _good(fields.get("sinks", ())):
            _sink(sink, f"sinks[{number}]", self._limits, problems)
        for number, rule in _good(fields.get("notices", ())):
            if problem := problems_of(rule):
                problems.append(DocumentProblem(f"notices[{number}]", problem))
            if self._secrets is not None and rule.secret in self._secrets.unsigned:
                told = f"the secret {rule.secret!r} belongs to the center; use another one"
                problems.append(DocumentProblem(f"notices[{number}].secret", told))
        _schedule(fields.get("schedule"), fields.get("name", ""), problems)
        if isinstance(document, Mapping):
            _something_to_do(document, problems)
            self._app(document, fields, problems)
        if problems:
            return None, problems
        job = _made(fields)
        settings = job.run_settings(UNSAID)
        if job.app is None:
            _try(lambda: self._validator.check_settings(settings), "settings", problems)
        return (None, problems) if problems else (job, [])

    def _app(
        self, document: Mapping[str, Any], fields: dict[str, Any], problems: list[DocumentProblem]
    ) -> None:
        if document.get("app") is not None:
            part, placed = fields.get("app"), fields.get("placement")
            problems += app_problems(part, document, placed, self._folder, self._secrets)

    def _downloader(self, part: Downloader | None, problems: list[DocumentProblem]) -> None:
        if part is None:
            return
        if part.kind not in self._kinds:
            known = ", ".join(self._kinds)
            message = f"there is no downloader {part.kind!r}; use one of {known}"
            problems.append(DocumentProblem("downloader.kind", message))
        kind = downloader_kind(part.kind)
        if kind.takes_code and not part.code:
            problems.append(DocumentProblem("downloader.code", f"is missing; {part.kind} needs it"))
        if part.code and not kind.takes_code:
            told = f"is not used by {part.kind}; remove it"
            problems.append(DocumentProblem("downloader.code", told))
        elif part.code:
            check = partial(check_source, kind.language, part.code)
            _try(check, "downloader.code", problems)

    def _settings(self, fields: dict[str, Any], problems: list[DocumentProblem]) -> None:
        given = dict(fields.get("settings", {}))
        for name, where in ELSEWHERE.items():
            if given.pop(name, None) is not None:
                problems.append(
                    DocumentProblem(f"settings.{name}", f"belongs {where}, not into `settings`")
                )
        good = fields_of(given, JobSettings, "settings", problems)
        for name, value in {**good.get("headers", {}), "Cookie": good.get("cookie", "")}.items():
            _try(partial(check_header, name, value), "settings.headers", problems)
        # Plain data, as the store returns it.
        fields["settings"] = msgspec.json.decode(msgspec.json.encode(good))

    def _requests(
        self,
        offered: Sequence[Offered],
        path: str,
        problems: list[DocumentProblem],
        kind: str = PLAIN,
    ) -> None:
        for number, request in _good(offered):
            check = partial(self._validator.rows, [request], 0, 0.0, kind)
            _try(check, f"{path}[{number}]", problems)

    def _generator(
        self, part: Generator, path: str, problems: list[DocumentProblem], kind: str
    ) -> None:
        traits = part.traits
        problems += [
            DocumentProblem(f"{path}.{name}", f"is missing; {part.kind} needs it")
            for name in traits.needs
            if not getattr(part, name)
        ]
        self._requests(part.uris, f"{path}.uris", problems, kind)
        if part.code and traits.language is not None:
            check = partial(check_generator, traits.language, part.code)
            _try(check, f"{path}.code", problems)
        if traits.queries and part.url and part.query:
            _try(partial(check_sql, part), path, problems)
        if traits.fetched and part.url:
            self._requests([part.url], f"{path}.url", problems)
        if part.cron:
            _try(lambda: cron_fields(part.cron), f"{path}.cron", problems)
        if part.path:
            self._file(part.path, f"{path}.path", problems, most=1)

    def _spider(self, part: SpiderPart | None, problems: list[DocumentProblem]) -> None:
        if part is None:
            return
        if ".py" in part.path and _FILE.fullmatch(part.path):
            text = self._file(part.path.partition(":")[0], "spider.path", problems)
            if text:
                _try(partial(_parse, text), "spider.path", problems)
        elif not _MODULE.fullmatch(part.path):
            problems.append(
                DocumentProblem(
                    "spider.path", "must be package.module:Class, file.py or file.py:Class"
                )
            )
        problems += [
            DocumentProblem(f"spider.arguments.{name}", "is not a valid argument name")
            for name in part.arguments
            if not name.isidentifier()
        ]

    def _file(self, name: str, path: str, problems: list[DocumentProblem], most: int = -1) -> str:
        """The text of a file in the folder for jobs; "" if the folder is not known."""
        if self._folder is None:
            return ""
        try:
            with inside(self._folder, name).open() as file:
                return file.read(most)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            told = f"cannot read {name!r} in the folder for jobs, {self._folder}: {why}"
            problems.append(
                DocumentProblem(path, f"{told}; put it there, or set jobs.folder of the center")
            )
        return ""


def linter() -> Checker:
    """A checker without a center, with the downloader kinds and schemes that are installed
    here."""
    kinds = known_kinds()
    return Checker(Validator(known_schemes(), Random(0), kinds), kinds)  # noqa: S311 - nothing secret


def _spelled_out(document: Any) -> Any:
    """The document with its short forms expanded: `downloader: http`, `spider: a.py`."""
    if not isinstance(document, Mapping):
        return document
    full = dict(document)
    for name, field in (("downloader", "kind"), ("spider", "path"), ("schedule", "cron")):
        if isinstance(full.get(name), str):
            full[name] = {field: full[name]}
    schedule = full.get("schedule")
    if isinstance(schedule, Mapping) and isinstance(schedule.get("after"), str):
        full["schedule"] = {**schedule, "after": [schedule["after"]]}
    if isinstance(full.get("sinks"), list):
        full["sinks"] = [{"url": s} if isinstance(s, str) else s for s in full["sinks"]]
    return full


def _made(fields: dict[str, Any]) -> Job:
    """The job without fields that have their default, so that equal jobs give equal text."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(Job)}
    return Job(**{name: v for name, v in fields.items() if v != defaults[name] and v != {}})


def _good(values: Sequence[Any]) -> list[tuple[int, Any]]:
    return [(number, value) for number, value in enumerate(values) if value is not None]


def _kind_of(fields: Mapping[str, Any]) -> str:
    """The kind of the downloader, as far as it can be read."""
    part = fields.get("downloader")
    return part.kind if isinstance(part, Downloader) else PLAIN


def _something_to_do(document: Mapping[str, Any], problems: list[DocumentProblem]) -> None:
    requested = document.get("requests") or document.get("generators")
    if document.get("app") is not None:
        return
    if document.get("sinks") and not document.get("spider"):
        problems.append(
            DocumentProblem("sinks", "need the items of a spider, and this job has no spider")
        )
    if document.get("spider") and requested:
        problems.append(DocumentProblem("spider", "cannot be combined with requests or generators"))
    if not document.get("spider") and not requested:
        told = "is empty" if document.get("requests") == [] else "is missing"
        problems.append(
            DocumentProblem(
                "requests", f"{told}; a job needs requests, generators, a spider or an app"
            )
        )


def _generator_names(parts: Sequence[Generator | None], problems: list[DocumentProblem]) -> None:
    """Names identify generators in commands and in the ledger of fires."""
    seen: set[str] = set()
    for number, part in _good(parts):
        path = f"generators[{number}].name"
        if part.cron and not PART_NAME.fullmatch(part.name):
            words = "1 to 16 letters, digits, `.`, `_` and `-`, first a letter or digit"
            problems.append(
                DocumentProblem(path, f"a generator with a cron line needs a name of {words}")
            )
        if part.name and part.name in seen:
            problems.append(DocumentProblem(path, f"{part.name!r} is used by two generators"))
        seen.add(part.name)


def _try(check: Callable[[], object], path: str, problems: list[DocumentProblem]) -> None:
    try:
        check()
    except SkepError as error:
        problems.append(DocumentProblem(path, error.detail.removeprefix("request 0: ")))
    except ValueError as error:
        problems.append(DocumentProblem(path, str(error)))


def _strategy(placed: Placement | None, problems: list[DocumentProblem]) -> None:
    if placed is not None and (problem := strategy_problem(placed)):
        problems.append(DocumentProblem("placement.strategy", problem))


def _schedule(part: Schedule | None, job: str, problems: list[DocumentProblem]) -> None:
    if part is not None:
        problems += [
            DocumentProblem(problem.path, problem.message) for problem in problems_in(part, job)
        ]


def _sink(part: SinkPart, path: str, limits: JobLimits, problems: list[DocumentProblem]) -> None:
    # The folder does not matter here, only whether the path could leave it.
    inside = Path("outputs")
    check = partial(open_sink, part.url, part.options, name="job", folder=inside, limits=limits)
    _try(check, path, problems)


def _parse(code: str) -> None:
    found = parse_python(code)
    if "line" in found:
        raise InvalidInput(f"line {found['line']}: {found['why']}: {found['text']}")
    if "why" in found:
        raise InvalidInput(found["why"])
