"""Records to an address that takes POSTs: a JSON batch, signed, with an idempotency key.

The body is `{"sink": NAME, "records": [{"position": 1, "data": {...}}, ...]}`. Trying
again is the caller's: an answer that may get better is Unavailable, and one that speaks
about the records refuses them. It follows no redirect.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence

from skep.errors import ConfigurationError, InvalidInput, Unavailable
from skep.runtime.clock import Clock
from skep.runtime.lazy_certificates import aiohttp
from skep.streams.checked_http import connector
from skep.streams.host_rules import JobLimits
from skep.streams.json_records import as_json, sort_out
from skep.streams.ports import Record, Refused
from skep.streams.sink_options import WebhookOptions
from skep.streams.sink_url import SinkUrl

#: Answers below 500 that concern the address and not the records: a person must grant access,
#: correct the address, or wait. Nothing is lost meanwhile.
NOT_ABOUT_RECORDS = frozenset({401, 402, 403, 404, 405, 407, 408, 410, 421, 423, 425, 429, 451})
SIGNATURE = "Skep-Signature"
TIMESTAMP = "Skep-Timestamp"
ANSWER_SHOWN = 200


def sign(secret: str, timestamp: int, body: bytes) -> str:
    """`v1=` + HMAC-SHA256 over the timestamp, a dot and the body."""
    message = f"{timestamp}.".encode() + body
    return f"v1={hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()}"


class WebhookSink:
    """One address."""

    def __init__(
        self,
        place: SinkUrl,
        options: WebhookOptions,
        name: str,
        secret: str,
        clock: Clock,
        limits: JobLimits | None = None,
    ) -> None:
        self._place, self._options, self._limits = place, options, limits
        self._name = name or f"{place.hosts}{place.path}"
        self._secret, self._clock = secret, clock
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> int:
        """Nothing is asked: there is no call that would change nothing at the other end."""
        await self.close()
        timeout = aiohttp.ClientTimeout(total=self._options.timeout)
        way = connector(self._limits.hosts) if self._limits is not None else None
        self._session = aiohttp.ClientSession(timeout=timeout, connector=way)
        return 0

    async def write(self, records: Sequence[Record]) -> list[Refused]:
        _, refused = sort_out(records, lambda record: as_json(record.data))
        if refused:
            return refused
        size = self._options.batch
        for start in range(0, len(records), size):
            reason = await self._post(records[start : start + size])
            if reason and len(records) > 1:
                raise InvalidInput(reason)  # smaller batches will show which one it is
            if reason:
                return [Refused(records[0].position, reason)]
        return []

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def describe(self) -> str:
        return self._place.shown

    async def _post(self, records: Sequence[Record]) -> str:
        """Empty when it was taken, else why these records were not."""
        if self._session is None:
            await self.open()
        assert self._session is not None  # noqa: S101 - just opened
        body = as_json({"sink": self._name, "records": list(records)})
        try:
            async with self._session.post(
                self._place.url,
                data=body,
                headers=self._headers(records, body),
                allow_redirects=False,
            ) as response:
                return self._judge(response.status, await self._said(response))
        except aiohttp.InvalidURL as error:
            raise ConfigurationError(f"webhook sink: not a URL: {error}") from error
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            why = "" if self._limits else str(error)
            raise Unavailable(f"{self._place.shown}: {why or type(error).__name__}") from error

    async def _said(self, response: aiohttp.ClientResponse) -> str:
        """The beginning of the answer, for the person who typed the URL; never for a job."""
        if self._limits is not None:
            return ""
        return (await response.content.read(ANSWER_SHOWN)).decode(errors="replace")

    def _headers(self, records: Sequence[Record], body: bytes) -> Mapping[str, str]:
        first, last = records[0].position, records[-1].position
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "skep",
            # Names may be any text; a header may not.
            "Idempotency-Key": f"{self._name.encode('ascii', 'backslashreplace').decode()}"
            f"/{first}-{last}",
        }
        if self._secret:
            now = int(self._clock.now())
            headers |= {TIMESTAMP: str(now), SIGNATURE: sign(self._secret, now, body)}
        return headers

    def _judge(self, status: int, said: str) -> str:
        if 200 <= status < 300:  # noqa: PLR2004 - as HTTP has it
            return ""
        answer = f"{self._place.shown} answered {status}: {' '.join(said.split())}".rstrip(": ")
        if status >= 500 or status in NOT_ABOUT_RECORDS or status < 400:  # noqa: PLR2004
            raise Unavailable(answer)
        return answer
