"""Checks user code without running it. Runs on centers, before a run is stored.

Python is parsed to a syntax tree only: the compiler would already evaluate constants.
Shell scripts are read by `sh -n`, which executes nothing. May block for some seconds.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping

from skep.downloaders.curl_options import BadOption, parse
from skep.errors import InvalidInput
from skep.jobs.definitions.code_parse import parse_python
from skep.model.downloader_kinds import downloader_kind, names_with
from skep.model.run import RunSettings
from skep.model.user_code import Language

CHECK_SECONDS = 5.0
_SHOWN = 200


def check_code(settings: RunSettings) -> None:
    """Raises InvalidInput, which names the problem and its line."""
    kind, code = downloader_kind(settings.downloader), settings.code
    if kind.takes_code and code is None:
        raise InvalidInput(f"the downloader {kind.name!r} needs `code` with a `source`")
    if not kind.takes_code and code is not None:
        takers = names_with("takes_code")
        raise InvalidInput(f"the downloader {kind.name!r} takes no `code`; use one of {takers}")
    if settings.curl and not kind.takes_options:
        raise InvalidInput(f"the downloader {kind.name!r} takes no `curl` options; remove them")
    if kind.takes_options:
        check_curl(settings.curl)
    if code is not None:
        check_source(kind.language, code.source)


def check_source(language: Language | None, source: str) -> None:
    """Raises InvalidInput. Only the downloader can check a language that centers do not know."""
    if "\0" in source:
        raise InvalidInput("the code contains a NUL character; remove it")
    if language is not None:
        _CHECKS[language](source)


def check_curl(options: tuple[str, ...]) -> None:
    try:
        plan = parse(options)
    except BadOption as error:
        raise InvalidInput(str(error)) from error
    for name, value in plan.headers.items():
        if not name or not f"{name}{value}".isprintable():
            raise InvalidInput(f"header {name[:50]!r} contains a control character, or has no name")


def check_generator(language: Language, source: str) -> None:
    """Raises InvalidInput unless a module parses and has a `generate`, or `sh` accepts a script."""
    _GENERATOR_CHECKS[language](source)


def _check_generate(source: str) -> None:
    check_python(source, "generate", "generate(...)")


def check_python(source: str, function: str = "run", shown: str = "run(uri, ...)") -> None:
    """Raises InvalidInput unless the module parses and has a `run`."""
    found = parse_python(source)
    if "line" in found:
        raise InvalidInput(f"the Python code, line {found['line']}: {found['why']}")
    if "why" in found:
        raise InvalidInput(f"the Python code {found['why']}")
    if function not in found["names"]:
        raise InvalidInput(f"the Python code has no function `{shown}`")


def check_shell(source: str) -> None:
    """Raises InvalidInput. A center without `sh` skips the check; agents report the error."""
    shell = shutil.which("sh")
    if shell is None:
        return
    try:
        said = subprocess.run(  # noqa: S603 - `-n` reads and does not execute
            [shell, "-n"], input=source.encode(), capture_output=True,
            timeout=CHECK_SECONDS, check=False, env={"PATH": "/usr/bin:/bin"}, cwd="/",
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise InvalidInput(
            f"the shell code takes more than {CHECK_SECONDS:g} s to parse; make it smaller"
        ) from error
    if said.returncode:
        text = " ".join(said.stderr.decode(errors="replace").split())[:_SHOWN]
        raise InvalidInput(f"the shell code: {text}")


_CHECKS: Mapping[Language, Callable[[str], None]] = {
    Language.PYTHON: check_python,
    Language.SHELL: check_shell,
}
_GENERATOR_CHECKS: Mapping[Language, Callable[[str], None]] = {
    Language.PYTHON: _check_generate,
    Language.SHELL: check_shell,
}
