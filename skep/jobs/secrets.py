"""A job as those see it who may not change it: without passwords, cookies and keys. Pure.

Run by centers for every answer to somebody who may only look.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from skep.jobs.notices import hidden_target
from skep.model.app import AppPart
from skep.model.job import Job, SinkPart
from skep.streams.registry import secrets_hidden

STARS = "***"
#: Headers that let somebody in.
_SECRET_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization", "x-api-key"})
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def hidden(job: Job) -> Job:
    """The same job with stars in place of what is secret."""
    settings = {name: _setting(name, value) for name, value in job.settings.items()}
    sinks = tuple(SinkPart(secrets_hidden(sink.url)) for sink in job.sinks)
    rules = tuple(
        msgspec.structs.replace(rule, webhook=hidden_target(rule.webhook)) for rule in job.notices
    )
    parts = tuple(msgspec.structs.replace(one, url=_starred(one.url)) for one in job.generators)
    return msgspec.structs.replace(
        job, settings=settings, sinks=sinks, notices=rules, generators=parts, app=_app(job.app)
    )


def _app(part: AppPart | None) -> AppPart | None:
    """Names of variables and secrets stay; what is in a variable may be a password."""
    if part is None:
        return None
    environment = dict.fromkeys(part.environment, STARS)
    command = tuple(map(_starred, part.command))
    return msgspec.structs.replace(
        part, environment=environment, command=command, package=_starred(part.package)
    )


def _setting(name: str, value: Any) -> Any:
    if name == "cookie":
        return STARS
    if name == "headers":
        return {k: STARS if k.lower() in _SECRET_HEADERS else v for k, v in value.items()}
    return _starred(value)


def _starred(value: Any) -> Any:
    """Credentials inside URLs, however deep they lie."""
    if isinstance(value, str):
        return _CREDENTIALS.sub(STARS, value)
    if isinstance(value, dict):
        return {name: _starred(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_starred(inner) for inner in value]
    return value
