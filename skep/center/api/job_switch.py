"""Jobs are turned on and off: nothing else of them changes. Run by centers.

A revision of its own, as every change; runs that are under way go on.
"""

from __future__ import annotations

from skep.center.api.jobs import CHANGES, author_of, job_name, job_row
from skep.center.http.authentication import Role
from skep.center.http.endpoint import Call
from skep.wire.api.jobs import DISABLE_JOB, ENABLE_JOB, JobPut


async def enable_job(call: Call) -> JobPut:
    """Turn a job on: its schedule counts, and it can be run."""
    return await _switch(call, enabled=True)


async def disable_job(call: Call) -> JobPut:
    """Turn a job off: it starts no run. Runs that are under way go on."""
    return await _switch(call, enabled=False)


async def _switch(call: Call, *, enabled: bool) -> JobPut:
    author = author_of(call.who, call.query.author)
    kept, what = await call.services.jobs.book.switch(job_name(call), author, enabled=enabled)
    return JobPut(what, kept.job, kept.revision)


ENDPOINTS = (
    job_row(
        ENABLE_JOB,
        Role.OPERATOR,
        enable_job,
        "Turn a job on",
        errors=CHANGES,
        notes="A revision of its own, unless the job is on already.",
    ),
    job_row(
        DISABLE_JOB,
        Role.OPERATOR,
        disable_job,
        "Turn a job off",
        errors=CHANGES,
        notes="It starts no run until it is turned on. Runs that are under way go on.",
    ),
)
