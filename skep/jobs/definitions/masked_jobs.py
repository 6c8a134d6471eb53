"""Jobs with their passwords, cookies and keys masked, for read-only roles. Pure.

Centers mask all answers to these roles; this module has the rules for the parts of jobs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from skep.jobs.definitions.struct_decoding import DocumentProblem
from skep.jobs.endings.notices import hidden_target
from skep.model.jobs.app import AppPart
from skep.model.jobs.job import Downloader, Job, SinkPart
from skep.model.jobs.notice import NoticeRule
from skep.runtime.masked_answers import Rule, masked
from skep.runtime.masking import MASK, mask_command, mask_options, mask_text, mask_values
from skep.streams.registry import secrets_hidden

#: A masked value in a document.
_MASKED = re.compile(rf"^{re.escape(MASK)}$|//{re.escape(MASK)}@|[=:] ?{re.escape(MASK)}(?!\*)")
#: Fields with free text, in which asterisks have no meaning.
_TEXTS = frozenset({"note", "customer", "code", "query"})


def hidden(job: Job) -> Job:
    """The job with its secrets masked."""
    shown: Job = masked(job, MASKS)
    return shown


def _sink(part: SinkPart) -> SinkPart:
    """A user name without a password may be a token: no credentials are shown."""
    return SinkPart(mask_text(secrets_hidden(part.url)))


def _notice(rule: NoticeRule) -> NoticeRule:
    return msgspec.structs.replace(rule, webhook=hidden_target(rule.webhook))


def _downloader(part: Downloader) -> Downloader:
    options = tuple(mask_options(part.options))
    return msgspec.structs.replace(part, options=options, code=mask_text(part.code))


def _app(part: AppPart) -> AppPart:
    """Names of variables and secrets are shown; the value of a variable may be a password."""
    return msgspec.structs.replace(
        part,
        environment=mask_values(part.environment),
        command=tuple(mask_command(part.command)),
        package=mask_text(part.package),
    )


MASKS: Mapping[type, Rule] = {
    SinkPart: _sink,
    NoticeRule: _notice,
    Downloader: _downloader,
    AppPart: _app,
}


def masked_problems(document: Any, path: str = "") -> Iterator[DocumentProblem]:
    """Problems of a document that was read masked: storing it would overwrite its secrets."""
    if isinstance(document, str):
        if _MASKED.search(document):
            yield DocumentProblem(path, "is masked; write the real value, or do not change the job")
    elif isinstance(document, Mapping):
        for name, inner in document.items():
            if name not in _TEXTS:
                yield from masked_problems(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(document, list | tuple):
        for number, inner in enumerate(document):
            yield from masked_problems(inner, f"{path}[{number}]")
