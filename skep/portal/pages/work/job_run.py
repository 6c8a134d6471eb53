"""Start a run of a job, with arguments for this run only."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec

from skep.errors import InvalidInput
from skep.portal.page import Done, PageCall
from skep.runtime.ids import new_id
from skep.wire.api.jobs import JobView, Starting

#: Fields of the form that hold an argument of the job begin with this.
_FIELD = "argument."


async def data(call: PageCall, view: JobView) -> dict[str, Any]:
    """Arguments of the job with their present values, its generators, and a key: a form that is
    sent twice starts one run."""
    job = view.kept.job
    known: dict[str, Any] = dict(job.spider.arguments) if job.spider else {}
    for generator in job.generators:
        known |= generator.arguments
    return {
        "arguments": [(name, _text(value)) for name, value in known.items()],
        "generators": [one.name for one in job.generators if one.name],
        "key": new_id("form", call.now, call.rng),
    }


async def start(call: PageCall, name: str) -> Done:
    arguments = _pairs(call.field("arguments"), "arguments")
    for field, values in call.form.items():
        if field.startswith(_FIELD) and values[0]:
            arguments[field.removeprefix(_FIELD)] = values[0]
    labels = _pairs(call.field("labels"), "labels")
    asks = Starting(call.field("generator"), _json(arguments), _json(labels))
    started = await call.api.jobs.run(name, asks, call.field("key")[:100])
    said = call.texts.plain("job.said_started", run=started.run)
    return Done(said, f"/runs/{quote(started.run, safe='')}")


def _pairs(text: str, what: str) -> dict[str, str]:
    """`NAME=VALUE`, one in a line."""
    found: dict[str, str] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise InvalidInput(f"{what}: {line[:100]!r} is not NAME=VALUE")
        found[name.strip()] = value.strip()
    return found


def _json(values: dict[str, str]) -> str:
    return msgspec.json.encode(values).decode() if values else ""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
