"""Reads, checks, sends and edits job files. Imported when `skep job` needs it.

Everything is read and checked before anything is sent, so that an error in the last document
does not leave half of the files applied.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from skep.cli.commands.jobs.job_calls import document_of, putting
from skep.cli.terminal.center_calls import connected, keep_answers
from skep.cli.terminal.exit_codes import ExitCode, code_of
from skep.cli.terminal.output import say, show, show_exact, show_json
from skep.embed.center_address import CenterAddress
from skep.errors import ConfigurationError, InvalidInput, SkepError
from skep.jobs.definitions.job_check import linter
from skep.model.jobs.documents import read_documents

if TYPE_CHECKING:
    from skep.wire.api.jobs import JobPut
    from skep.wire.client import CenterClient

#: A field for the center that is not part of the job.
REVISION = "revision"


@dataclass(frozen=True, slots=True)
class Document:
    """One document and its source."""

    file: str
    number: int
    data: Any

    @property
    def name(self) -> str:
        found = self.data.get("name") if isinstance(self.data, dict) else None
        return found if isinstance(found, str) and found else f"document {self.number}"

    @property
    def where(self) -> str:
        return f"{self.file}: {self.name}"

    def faults(self) -> list[str]:
        """All problems, as `path: message`."""
        plain = self.data
        if isinstance(plain, dict):
            plain = {name: value for name, value in plain.items() if name != REVISION}
        return [str(fault) for fault in linter().judge(plain)[1]]


def read_files(files: Sequence[Path]) -> list[Document]:
    """All documents of all files; raises InvalidInput for a file that cannot be read."""
    documents: list[Document] = []
    for file in files:
        shown = "stdin" if str(file) == "-" else str(file)
        found = read_documents(_text_of(file, shown), shown)
        if not found:
            raise InvalidInput(f"{shown} contains no document; see docs/reference/jobs.md")
        documents += [Document(shown, number, data) for number, data in enumerate(found, 1)]
    return documents


def _text_of(file: Path, shown: str) -> str:
    try:
        return sys.stdin.read() if shown == "stdin" else file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{shown} is not text (it is not UTF-8); write it as YAML") from error


def lint_files(files: Sequence[Path], *, as_json: bool) -> int:
    """Return the exit code: 0 if every document is valid."""
    documents = read_files(files)
    judged = [(document, document.faults()) for document in documents]
    if as_json:
        show_json(
            {"items": [{"file": d.file, "job": d.name, "faults": faults} for d, faults in judged]}
        )
    else:
        _tell(judged)
    if any(faults for _, faults in judged):
        return ExitCode.USAGE
    if not as_json:
        show(f"{len(documents)} valid")
    return ExitCode.OK


def _tell(judged: Sequence[tuple[Document, list[str]]]) -> None:
    for document, faults in judged:
        for fault in faults:
            say(f"{document.where}: {fault}")


async def apply_files(
    reach: CenterAddress, files: Sequence[Path], *, dry_run: bool, test: bool, as_json: bool
) -> int:
    """Show the result for each document; return the exit code."""
    documents = read_files(files)
    judged = [(document, document.faults()) for document in documents]
    if any(faults for _, faults in judged):
        _tell(judged)
        say("nothing was applied")
        return ExitCode.USAGE
    async with connected(reach) as client:
        trial = {"dry_run": True, "test": test, "alert": not dry_run}
        tried, errors = await _put_all(client, documents, **trial)
        if errors:
            say("nothing was applied")
            return code_of(errors[0])
        done = tried
        if not dry_run:  # their code was tested by the dry run
            done, errors = await _put_all(client, documents, test=False)
    if as_json:
        show_json({"items": done})
    else:
        for answer in done:
            _show_put(answer, dry_run)
    if not errors:
        return ExitCode.OK
    return ExitCode.PARTLY if done else code_of(errors[0])


async def _put_all(
    client: CenterClient, documents: Sequence[Document], **how: bool
) -> tuple[list[JobPut], list[SkepError]]:
    """(answers, errors); each error is printed with its document."""
    done: list[JobPut] = []
    errors: list[SkepError] = []
    names = [document.name for document in documents]
    for document in documents:
        try:
            put = put_document(client, document.name, document.data, beside=names, **how)
            done.append(await put)
        except SkepError as error:
            errors.append(error)
            for line in error.detail.splitlines():
                say(f"{document.where}: {line}")
    return done, errors


async def put_document(
    client: CenterClient,
    name: str,
    data: dict[str, Any],
    *,
    dry_run: bool = False,
    test: bool = True,
    alert: bool = False,
    beside: Sequence[str] = (),
) -> JobPut:
    """Send a document together with those of `beside` that it runs after."""
    schedule = data.get("schedule") if isinstance(data, dict) else None
    after = schedule.get("after") if isinstance(schedule, dict) else None
    others = ",".join(one for one in after or () if one in beside)
    asks = replace(putting(), dry_run=dry_run, test=test, alert=alert, beside=others)
    return await client.api.jobs.put(name, data, asks)


def _show_put(answer: JobPut, dry_run: bool) -> None:
    name = answer.job.name
    if not dry_run:
        show(f"{answer.what} {name} (revision {answer.revision})")
        return
    show(f"{name} would be {answer.what}")
    if answer.diff:
        show_exact(answer.diff)


async def edit_job(reach: CenterAddress, job: str, *, as_json: bool) -> int:
    """Return the exit code. A text that was not stored stays in its file."""
    keep_answers()  # fields that this version does not know stay in the document
    async with connected(reach) as client:
        view = await client.api.jobs.show(job)
        before = f"{document_of(view)}\n"
        draft = _drafted(before, job)
        _open_editor(draft)
        text = draft.read_text()
        if text == before:
            draft.unlink()
            show(f"unchanged {job}")
            return ExitCode.OK
        try:
            answer = await _put_draft(client, text, draft, view.kept.revision)
        except SkepError as error:
            say(f"your text is in {draft}; try again with `skep job apply {draft}`")
            raise error from None
    draft.unlink()
    show_json(answer) if as_json else _show_put(answer, dry_run=False)
    return ExitCode.OK


async def _put_draft(client: CenterClient, text: str, draft: Path, revision: int) -> JobPut:
    found = read_documents(text, str(draft))
    if len(found) != 1 or not isinstance(found[0], dict):
        raise ConfigurationError(
            "the text is not one document with fields; write a mapping such as `name: NAME`"
        )
    document = Document(str(draft), 1, found[0])
    return await put_document(client, document.name, {**found[0], REVISION: revision})


def _drafted(text: str, job: str) -> Path:
    """Create a file that only its owner can read, because a job may contain passwords."""
    file, name = tempfile.mkstemp(prefix=f"{job}-", suffix=".yaml")
    with os.fdopen(file, "w") as draft:
        draft.write(text)
    return Path(name)


def _open_editor(file: Path) -> None:
    """Raises ConfigurationError if no editor is set or the editor failed."""
    chosen = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not chosen:
        file.unlink()
        raise ConfigurationError("no editor is set; set one with EDITOR=vi")
    try:
        ended = subprocess.run([*shlex.split(chosen), str(file)], check=False)  # noqa: S603 - the user's own
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"the editor {chosen!r} cannot be started: {error}") from error
    if ended.returncode:
        raise ConfigurationError(
            f"the editor exited with {ended.returncode}; your text is in {file}"
        )
