"""Checks the `app` of a job document and reports all problems. Used by centers, and by
`skep job lint` with fewer checks.

Nothing is ever fetched, unpacked or run here. Arguments of git or of a container engine must
match strict patterns, so that none of them can look like an option.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from skep.errors import ConfigurationError
from skep.jobs.apps.package_source import GitSource, check_wheel_name, git_source
from skep.jobs.apps.secrets import AppSecrets
from skep.jobs.definitions.jobs_folder import inside
from skep.jobs.definitions.struct_decoding import DocumentProblem
from skep.model.fleet.placement import Placement
from skep.model.jobs.app import AppPart

#: Parts of a document that have no meaning in a job with an application.
UNUSED_PARTS = ("requests", "generators", "spider", "sinks", "downloader")
#: Settings that apply to runs of applications.
APPLIED_SETTINGS = frozenset({"run_time_limit"})
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,250}[A-Za-z0-9])?(?::[0-9]{1,5})?"
IMAGE = re.compile(
    rf"(?:{_HOST}/)?{_COMPONENT}(?:/{_COMPONENT})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
_SECRET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def app_problems(
    part: AppPart | None,
    document: Mapping[str, Any],
    placement: Placement | None,
    folder: Path | None,
    secrets: AppSecrets | None,
) -> Iterator[DocumentProblem]:
    """All problems, with their paths. `folder`: the folder of packages; `secrets`: the secrets;
    None = not known here."""
    for name in UNUSED_PARTS:
        if document.get(name):
            yield DocumentProblem(name, "has no meaning in a job with an application")
    yield from _settings(document.get("settings"))
    if placement is not None and not placement.traits.hosts_apps:
        text = f"must be fixed (n = its instances) for an application, not {placement.strategy}"
        yield DocumentProblem("placement.strategy", text)
    if part is not None:
        yield from _what(part)
        yield from _command(part)
        yield from _package(part.package, folder)
        yield from _environment(part, secrets)


def _settings(settings: object) -> Iterator[DocumentProblem]:
    for name in settings if isinstance(settings, Mapping) else ():
        if name not in APPLIED_SETTINGS:
            yield DocumentProblem(f"settings.{name}", "has no meaning in a job with an application")


def _what(part: AppPart) -> Iterator[DocumentProblem]:
    if bool(part.package) == bool(part.image):
        yield DocumentProblem("app", "needs either a package or an image")
    if part.image and not IMAGE.fullmatch(part.image):
        yield DocumentProblem("app.image", f"{part.image[:200]!r} is not a valid image name")


def _command(part: AppPart) -> Iterator[DocumentProblem]:
    if part.package and not part.command:
        yield DocumentProblem("app.command", "is missing; a package does not define its command")
    if part.command and not part.command[0]:
        yield DocumentProblem("app.command[0]", "is empty; write the name of the program")
    for number, text in enumerate(part.command):
        if problem := _unfit(text):
            yield DocumentProblem(f"app.command[{number}]", problem)


def _package(package: str, folder: Path | None) -> Iterator[DocumentProblem]:
    if not package:
        return
    try:
        if package.startswith("git+"):
            _git_in(git_source(package), folder)
        else:
            _file_in(package, folder)
    except ValueError as error:
        yield DocumentProblem("app.package", str(error))


def _git_in(source: GitSource, folder: Path | None) -> None:
    if source.path is not None and folder is not None and not inside(folder, source.path).is_dir():
        raise ValueError(f"{str(source.path)!r} is not a repository in the folder for jobs")


def _file_in(package: str, folder: Path | None) -> None:
    if "\0" in package or Path(package).is_absolute() or ".." in Path(package).parts:
        raise ValueError("must be git+URL@REF or a path inside the folder for jobs, without `..`")
    if package.endswith(".whl"):
        check_wheel_name(Path(package).name)
    if folder is None:
        return
    found = inside(folder, Path(package))
    if found.is_dir() or (found.is_file() and found.suffix in {".whl", ".zip"}):
        return
    raise ValueError(f"{package!r} is not a .whl, .zip or folder in the folder for jobs")


def _environment(part: AppPart, secrets: AppSecrets | None) -> Iterator[DocumentProblem]:
    for name, value in part.environment.items():
        if problem := _unfit(value):
            yield DocumentProblem(f"app.environment.{name}", problem)
        if name in part.secrets:
            yield DocumentProblem(f"app.secrets.{name}", "is also in `environment`; remove one")
    for name, secret in part.secrets.items():
        if not _SECRET_NAME.fullmatch(secret):
            told = "names a file: letters, digits, `.`, `_` and `-`, first a letter or digit"
            yield DocumentProblem(f"app.secrets.{name}", told)
        elif secrets is not None:
            yield from _readable(f"app.secrets.{name}", secret, secrets)


def _readable(path: str, secret: str, secrets: AppSecrets) -> Iterator[DocumentProblem]:
    try:
        secrets.text(secret)
    except ConfigurationError as error:
        yield DocumentProblem(path, error.detail)


def _unfit(text: str) -> str:
    """Why the kernel would refuse the text as an argument or a variable."""
    if "\0" in text:
        return "contains a NUL character"
    return "" if text.isprintable() or _encodable(text) else "cannot be written as UTF-8"


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
