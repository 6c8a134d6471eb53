"""Why something does not run: what it waits for, and what will free it.

Run by centers: a few short reads, then pure reasoning. Asking changes nothing.
"""

from __future__ import annotations

from skep.center.api.jobs import JOB_NAMES, job_name
from skep.center.api.names import NUMBERS, RUN_NAMES, number, run_name
from skep.center.api.sites import HOSTS, host_name
from skep.center.auth import Role
from skep.center.endpoint import Call, Endpoint
from skep.errors import InvalidInput, NotFound, SkepError, UnknownBlock, UnknownJob, UnknownRun
from skep.model.why import Why

_NOTES = (
    "Reasons come most decisive first, each with a stable `code`, a sentence, what will free it, "
    "`until` when where that is known, commands that help, and the facts behind the sentence. "
    "The answer takes a few short reads, however large the store is."
)


async def why_request(call: Call) -> Why:
    """What a request waits for, or how it ended."""
    return await call.services.why.request(number(call.path["request"]))


async def why_block(call: Call) -> Why:
    """What a block waits for, or how it ended."""
    return await call.services.why.block(number(call.path["block"]))


async def why_run(call: Call) -> Why:
    """What a run waits for, or how it ended."""
    return await call.services.why.run(run_name(call.path["run"]))


async def why_job(call: Call) -> Why:
    """Why a job does not run, or when it will."""
    return await call.services.why.job(job_name(call))


async def why_site(call: Call) -> Why:
    """What those wait for who want to ask a host."""
    return await call.services.why.site(host_name(call))


def _row(kind: str, handler: object, summary: str, *errors: type[SkepError]) -> Endpoint:
    names = {"request": NUMBERS, "block": NUMBERS, "run": RUN_NAMES, "job": JOB_NAMES}
    key = "host" if kind == "site" else kind
    return Endpoint(
        "GET",
        f"/api/v1/why/{kind}s/{{{key}}}",
        Role.VIEWER,
        handler,  # type: ignore[arg-type]  # the table's handlers all take one Call
        summary,
        gives=Why,
        errors=(InvalidInput, *errors),
        tag="why",
        parameters=names.get(kind, HOSTS),
        notes=_NOTES,
    )


ENDPOINTS = (
    _row("request", why_request, "Why a request is not done", NotFound),
    _row("block", why_block, "Why a block is not done", UnknownBlock),
    _row("run", why_run, "Why a run does not go on", UnknownRun),
    _row("job", why_job, "Why a job does not run", UnknownJob),
    _row("site", why_site, "Why a host is not asked"),
)
