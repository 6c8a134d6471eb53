"""Is this document a job? Says everything that is wrong with it at once. Centers, and
`skep job lint` with less to compare against.

Nothing of a document is ever executed here: Python is parsed, shell is read by `sh -n`.
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
from skep.jobs.definitions.nesting_depth import DEPTH_LIMIT, too_deep
from skep.jobs.definitions.struct_decoding import DocumentProblem, fields_of
from skep.jobs.endings.notices import problems_of
from skep.jobs.generators.sql_source import check_sql
from skep.jobs.request_validation import PLAIN, Validator, check_header, strategy_problem
from skep.model.downloader_kinds import BUILT_IN, HTTP, downloader_kind
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
from skep.model.jobs.schedule import Schedule, cron_fields, problems_in
from skep.model.request import Offered
from skep.model.run import RunSettings
from skep.streams.host_rules import UNCONNECTED, JobLimits
from skep.streams.registry import open_sink

#: Kinds of downloader that every center has, and the schemes that they fetch.
KINDS = tuple(kind.name for kind in BUILT_IN)
SCHEMES = HTTP.schemes
UNSAID = RunSettings()
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_FILE = re.compile(r"(?!/)[^\0:]+\.py(:[A-Za-z_]\w*)?")
#: Fields of a run's settings that stand elsewhere in a document.
ELSEWHERE = {
    "priority": "at the top of the document",
    "downloader": "at the top of the document",
    "placement": "at the top of the document",
    "code": "under `downloader`",
    "curl": "under `downloader`, as `options`",
}


class Checker:
    """Checks documents against what this center can do; without `folder` and with every
    kind allowed, against what any center might do."""

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
        """The job; raises InvalidJob with a line for every fault. Reads files and asks `sh`:
        call it in a thread."""
        job, faults = self.judge(document)
        if job is None:
            raise InvalidJob("\n".join(map(str, faults)))
        return job

    def judge(self, document: Any) -> tuple[Job | None, list[DocumentProblem]]:
        """The job, or None and everything that is wrong."""
        if deep := too_deep(document):
            return None, [DocumentProblem(deep, f"is nested deeper than {DEPTH_LIMIT} levels")]
        faults: list[DocumentProblem] = [*masked_problems(document)]
        fields = fields_of(_spelled_out(document), Job, "", faults)
        self._downloader(fields.get("downloader"), faults)
        self._settings(fields, faults)
        _strategy(fields.get("placement"), faults)
        kind = _kind_of(fields)
        self._requests(fields.get("requests", ()), "requests", faults, kind)
        for number, generator in _good(fields.get("generators", ())):
            self._generator(generator, f"generators[{number}]", faults, kind)
        _generator_names(fields.get("generators", ()), faults)
        self._spider(fields.get("spider"), faults)
        for number, sink in _good(fields.get("sinks", ())):
            _sink(sink, f"sinks[{number}]", self._limits, faults)
        for number, rule in _good(fields.get("notices", ())):
            if problem := problems_of(rule):
                faults.append(DocumentProblem(f"notices[{number}]", problem))
            if self._secrets is not None and rule.secret in self._secrets.unsigned:
                told = f"the secret {rule.secret!r} is one of the center's own"
                faults.append(DocumentProblem(f"notices[{number}].secret", told))
        _schedule(fields.get("schedule"), fields.get("name", ""), faults)
        if isinstance(document, Mapping):
            _something_to_do(document, faults)
            self._app(document, fields, faults)
        if faults:
            return None, faults
        job = _made(fields)
        settings = job.run_settings(UNSAID)
        if job.app is None:
            _try(lambda: self._validator.check_settings(settings), "settings", faults)
        return (None, faults) if faults else (job, [])

    def _app(
        self, document: Mapping[str, Any], fields: dict[str, Any], faults: list[DocumentProblem]
    ) -> None:
        if document.get("app") is not None:
            part, placed = fields.get("app"), fields.get("placement")
            faults += app_problems(part, document, placed, self._folder, self._secrets)

    def _downloader(self, part: Downloader | None, faults: list[DocumentProblem]) -> None:
        if part is None:
            return
        if part.kind not in self._kinds:
            known = ", ".join(self._kinds)
            message = f"there is no downloader {part.kind!r} here; known are {known}"
            faults.append(DocumentProblem("downloader.kind", message))
        kind = downloader_kind(part.kind)
        if kind.takes_code and not part.code:
            faults.append(DocumentProblem("downloader.code", f"is missing; {part.kind} needs it"))
        if part.code and not kind.takes_code:
            faults.append(DocumentProblem("downloader.code", f"{part.kind} takes no code"))
        elif part.code:
            check = partial(check_source, kind.language, part.code)
            _try(check, "downloader.code", faults)

    def _settings(self, fields: dict[str, Any], faults: list[DocumentProblem]) -> None:
        given = dict(fields.get("settings", {}))
        for name, where in ELSEWHERE.items():
            if given.pop(name, None) is not None:
                faults.append(
                    DocumentProblem(f"settings.{name}", f"stands {where}, not among the settings")
                )
        good = fields_of(given, JobSettings, "settings", faults)
        for name, value in {**good.get("headers", {}), "Cookie": good.get("cookie", "")}.items():
            _try(partial(check_header, name, value), "settings.headers", faults)
        # Plain data, as it comes back from the store.
        fields["settings"] = msgspec.json.decode(msgspec.json.encode(good))

    def _requests(
        self,
        offered: Sequence[Offered],
        path: str,
        faults: list[DocumentProblem],
        kind: str = PLAIN,
    ) -> None:
        for number, request in _good(offered):
            check = partial(self._validator.rows, [request], 0, 0.0, kind)
            _try(check, f"{path}[{number}]", faults)

    def _generator(
        self, part: Generator, path: str, faults: list[DocumentProblem], kind: str
    ) -> None:
        traits = part.traits
        faults += [
            DocumentProblem(f"{path}.{name}", f"is missing; {part.kind} needs it")
            for name in traits.needs
            if not getattr(part, name)
        ]
        self._requests(part.uris, f"{path}.uris", faults, kind)
        if part.code and traits.language is not None:
            check = partial(check_generator, traits.language, part.code)
            _try(check, f"{path}.code", faults)
        if traits.queries and part.url and part.query:
            _try(partial(check_sql, part), path, faults)
        if traits.fetched and part.url:
            self._requests([part.url], f"{path}.url", faults)
        if part.cron:
            _try(lambda: cron_fields(part.cron), f"{path}.cron", faults)
        if part.path:
            self._file(part.path, f"{path}.path", faults, most=1)

    def _spider(self, part: SpiderPart | None, faults: list[DocumentProblem]) -> None:
        if part is None:
            return
        if ".py" in part.path and _FILE.fullmatch(part.path):
            text = self._file(part.path.partition(":")[0], "spider.path", faults)
            if text:
                _try(partial(_parse, text), "spider.path", faults)
        elif not _MODULE.fullmatch(part.path):
            faults.append(
                DocumentProblem(
                    "spider.path", "must be package.module:Class, file.py or file.py:Class"
                )
            )
        faults += [
            DocumentProblem(f"spider.arguments.{name}", "is no name of an argument")
            for name in part.arguments
            if not name.isidentifier()
        ]

    def _file(self, name: str, path: str, faults: list[DocumentProblem], most: int = -1) -> str:
        """The text of a file in the folder for jobs; "" where there is no such folder."""
        if self._folder is None:
            return ""
        try:
            with inside(self._folder, name).open() as file:
                return file.read(most)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            told = f"cannot read {name!r} in the folder for jobs, {self._folder}: {why}"
            faults.append(
                DocumentProblem(path, f"{told}; put it there, or set jobs.folder of the center")
            )
        return ""


def linter() -> Checker:
    """What can be said about a document without a center: with the kinds and schemes that are
    installed here, as a center of this installation has them."""
    kinds = known_kinds()
    schemes = (*SCHEMES, *known_schemes())
    return Checker(Validator(schemes, Random(0), kinds), kinds)  # noqa: S311 - nothing secret


def _spelled_out(document: Any) -> Any:
    """With the short forms written in full: `downloader: http`, `spider: a.py`."""
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
    """Without what is as it would be anyway, so that the same job is the same text."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(Job)}
    return Job(**{name: v for name, v in fields.items() if v != defaults[name] and v != {}})


def _good(values: Sequence[Any]) -> list[tuple[int, Any]]:
    return [(number, value) for number, value in enumerate(values) if value is not None]


def _kind_of(fields: Mapping[str, Any]) -> str:
    """Of the downloader, as far as it can be read."""
    part = fields.get("downloader")
    return part.kind if isinstance(part, Downloader) else PLAIN


def _something_to_do(document: Mapping[str, Any], faults: list[DocumentProblem]) -> None:
    requested = document.get("requests") or document.get("generators")
    if document.get("app") is not None:
        return
    if document.get("sinks") and not document.get("spider"):
        faults.append(
            DocumentProblem("sinks", "take items of a spider, and this job has no spider")
        )
    if document.get("spider") and requested:
        faults.append(
            DocumentProblem("spider", "a job has a spider, or requests and generators, not both")
        )
    if not document.get("spider") and not requested:
        told = "is empty" if document.get("requests") == [] else "is missing"
        faults.append(
            DocumentProblem(
                "requests", f"{told}; a job has requests, generators, a spider or an app"
            )
        )


def _generator_names(parts: Sequence[Generator | None], faults: list[DocumentProblem]) -> None:
    """By their names they are run, and their own cron lines are kept in the ledger."""
    seen: set[str] = set()
    for number, part in _good(parts):
        path = f"generators[{number}].name"
        if part.cron and not PART_NAME.fullmatch(part.name):
            words = "1 to 16 letters, digits, `.`, `_` and `-`, the first one a letter or digit"
            faults.append(
                DocumentProblem(path, f"a generator with a cron line has a name of {words}")
            )
        if part.name and part.name in seen:
            faults.append(DocumentProblem(path, f"there are two generators {part.name!r}"))
        seen.add(part.name)


def _try(check: Callable[[], object], path: str, faults: list[DocumentProblem]) -> None:
    try:
        check()
    except SkepError as error:
        faults.append(DocumentProblem(path, error.detail.removeprefix("request 0: ")))
    except ValueError as error:
        faults.append(DocumentProblem(path, str(error)))


def _strategy(placed: Placement | None, faults: list[DocumentProblem]) -> None:
    if placed is not None and (problem := strategy_problem(placed)):
        faults.append(DocumentProblem("placement.strategy", problem))


def _schedule(part: Schedule | None, job: str, faults: list[DocumentProblem]) -> None:
    if part is not None:
        faults += [
            DocumentProblem(problem.path, problem.message) for problem in problems_in(part, job)
        ]


def _sink(part: SinkPart, path: str, limits: JobLimits, faults: list[DocumentProblem]) -> None:
    # Which folder it will be does not matter here: only whether it could lie outside.
    inside = Path("outputs")
    check = partial(open_sink, part.url, part.options, name="job", folder=inside, limits=limits)
    _try(check, path, faults)


def _parse(code: str) -> None:
    found = parse_python(code)
    if "line" in found:
        raise InvalidInput(f"line {found['line']}: {found['why']}: {found['text']}")
    if "why" in found:
        raise InvalidInput(found["why"])
