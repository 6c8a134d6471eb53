"""Errors for objects that do not exist. Pure; used by centers.

An object outside the scope of a caller gets the same error, word for word, so that the caller
cannot tell the two apart.
"""

from __future__ import annotations

from skep.errors import NotFound, UnknownBlock, UnknownJob, UnknownRun


def unknown_run(name: str) -> UnknownRun:
    return UnknownRun(
        f"there is no run {name!r}; create it with PUT /api/v1/runs/{name}"
        " or with `skep submit --new`"
    )


def unknown_job(name: str) -> UnknownJob:
    return UnknownJob(
        f"there is no job {name!r}; `skep job ls` lists jobs, `skep job apply FILE` creates one"
    )


def unknown_request(number: int) -> NotFound:
    return NotFound(f"there is no request {number}; `skep request ls` lists requests")


def unknown_block(number: int) -> UnknownBlock:
    return UnknownBlock(f"there is no block {number}")


def unknown_group(name: str) -> NotFound:
    return NotFound(f"there is no failure group {name[:100]!r}; `skep failures groups` lists them")


def unknown_operation(number: int) -> NotFound:
    return NotFound(f"there is no operation {number}; `skep op ls` lists operations")
