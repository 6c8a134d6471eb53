"""A job as callers see it who may not change it: without passwords, cookies and keys. Pure.

Centers mask every answer to such callers; what is special about parts of jobs stands here.
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

#: What a masked value looks like where it stands in a document.
_MASKED = re.compile(rf"^{re.escape(MASK)}$|//{re.escape(MASK)}@|[=:] ?{re.escape(MASK)}(?!\*)")
#: Fields of people's own text, in which stars mean nothing.
_TEXTS = frozenset({"note", "customer", "code", "query"})


def hidden(job: Job) -> Job:
    """The same job with stars in place of what is secret."""
    shown: Job = masked(job, MASKS)
    return shown


def _sink(part: SinkPart) -> SinkPart:
    """A name without a password may be a token: no login is shown."""
    return SinkPart(mask_text(secrets_hidden(part.url)))


def _notice(rule: NoticeRule) -> NoticeRule:
    return msgspec.structs.replace(rule, webhook=hidden_target(rule.webhook))


def _downloader(part: Downloader) -> Downloader:
    options = tuple(mask_options(part.options))
    return msgspec.structs.replace(part, options=options, code=mask_text(part.code))


def _app(part: AppPart) -> AppPart:
    """Names of variables and secrets stay; what is in a variable may be a password."""
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
    """A document that was read masked must not be kept: its stars would replace the secrets."""
    if isinstance(document, str):
        if _MASKED.search(document):
            yield DocumentProblem(
                path, "is masked; write the real value, or leave the job as it is"
            )
    elif isinstance(document, Mapping):
        for name, inner in document.items():
            if name not in _TEXTS:
                yield from masked_problems(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(document, list | tuple):
        for number, inner in enumerate(document):
            yield from masked_problems(inner, f"{path}[{number}]")
