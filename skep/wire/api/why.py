"""Explanations why something does not run: routes. The answer is `model.wait_reasons.Why`."""

from __future__ import annotations

from skep.model.wait_reasons import Why
from skep.wire.api.caller import Resource
from skep.wire.api.route import Route

EXPLAIN_REQUEST = Route("explain_request", "GET", "/api/v1/why/requests/{request}", Why)
EXPLAIN_BLOCK = Route("explain_block", "GET", "/api/v1/why/blocks/{block}", Why)
EXPLAIN_RUN = Route("explain_run", "GET", "/api/v1/why/runs/{run}", Why)
EXPLAIN_JOB = Route("explain_job", "GET", "/api/v1/why/jobs/{job}", Why)
EXPLAIN_SITE = Route("explain_site", "GET", "/api/v1/why/sites/{host}", Why)


class WhyClient(Resource):
    """Calls the routes of this file."""

    async def request(self, request: int) -> Why:
        """Why a request is not done."""
        return await self._caller.call(EXPLAIN_REQUEST, request)

    async def block(self, block: int) -> Why:
        """Why a block is not done."""
        return await self._caller.call(EXPLAIN_BLOCK, block)

    async def run(self, run: str) -> Why:
        """Why a run does not go on."""
        return await self._caller.call(EXPLAIN_RUN, run)

    async def job(self, job: str) -> Why:
        """Why a job does not run."""
        return await self._caller.call(EXPLAIN_JOB, job)

    async def host(self, host: str) -> Why:
        """Why a host is not asked."""
        return await self._caller.call(EXPLAIN_SITE, host)
