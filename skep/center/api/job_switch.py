"""Enables and disables jobs; nothing else of a job changes. Run by centers.

Each change is a new revision. Active runs continue.
"""

from __future__ import annotations

from skep.center.api.jobs import CHANGES, author_of, job_name, job_row
from skep.center.http.authentication import Role
from skep.center.http.endpoint import Call
from skep.wire.api.jobs import DISABLE_JOB, ENABLE_JOB, JobPut


async def enable_job(call: Call) -> JobPut:
    """Enable a job: its schedule applies, and it can be run."""
    return await _switch(call, enabled=True)


async def disable_job(call: Call) -> JobPut:
    """Disable a job: it starts no runs. Active runs continue."""
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
        "Enable a job",
        errors=CHANGES,
        notes="Creates a revision, unless the job is enabled already.",
    ),
    job_row(
        DISABLE_JOB,
        Role.OPERATOR,
        disable_job,
        "Disable a job",
        errors=CHANGES,
        notes="It starts no runs until it is enabled. Active runs continue.",
    ),
)
