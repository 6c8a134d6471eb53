"""Creates notices of ended runs and sends them by webhook and mail. Centers only.

Delivery is at least once, in any order; the id of a notice stays the same, so that a receiver
can recognise duplicates. Webhooks are signed as in Standard Webhooks (id, timestamp and body,
HMAC-SHA256) and may reach only what the egress rules allow. Jobs and settings name secrets; the
values are in files that only the center reads, and are never shown or logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from skep.errors import ConfigurationError, SkepError, Unavailable, UnknownJob, UnknownRun
from skep.model.jobs.notice import Notice, NoticeRule, RunEnding
from skep.runtime.backoff import Backoff
from skep.runtime.clock import Clock
from skep.runtime.masking import mask_text
from skep.settings import NoticeSettings
from skep.store.ports import Store

log = logging.getLogger(__name__)

#: Tries of one notice, with growing delays: about two days.
TRIES = 20
BACKOFF = Backoff(first=5.0, cap=6 * 3600.0)
#: Seconds for which a center holds a notice; then another center may try.
HOLD_SECONDS = 120.0
AT_ONCE = 20
ENDINGS = 100
ALERT = "notice_failed"


#: Reads a secret of the store by name; None = there is none for this use. It blocks.
StoredSecret = Callable[[str], bytes | None]


def nothing_stored(_name: str) -> bytes | None:
    return None


class NoticeTransport(Protocol):
    """Sends one notice."""

    async def deliver(self, notice: Notice, secret: bytes) -> None:
        """Raises Unavailable when a retry may succeed, ConfigurationError when it cannot."""


class Notifier:
    """One center's part in sending notices."""

    def __init__(
        self,
        settings: NoticeSettings,
        store: Store,
        transports: dict[str, NoticeTransport],
        secrets: Path,
        clock: Clock,
        rng: Random,
        own: frozenset[str] = frozenset(),
        stored: StoredSecret = nothing_stored,
    ) -> None:
        """`own`: secrets with another purpose, such as the password of the mail server. The
        receiver of a signature could guess passwords offline. `stored` reads secrets of the
        store."""
        self._own = own
        self._stored = stored
        self._settings = settings
        self._store = store
        self._transports = transports
        self._secrets = secrets
        self._clock = clock
        self._rng = rng

    async def step(self) -> int:
        """Create notices of new endings and send those that are due; return how many were tried."""
        for ending in await self._store.notices.endings(ENDINGS):
            await self._store.notices.post(ending.id, await self._notices(ending))
        now = self._clock.now()
        due = await self._store.notices.take(now, now + HOLD_SECONDS, AT_ONCE)
        await asyncio.gather(*(self._tell(notice) for notice in due))
        return len(due)

    async def _notices(self, ending: RunEnding) -> list[Notice]:
        try:
            run = await self._store.runs.get(ending.run)
        except UnknownRun:
            return []
        rules = [*self._center_rules(), *await self._of_job(run.job)]
        wanted = [rule for rule in rules if ending.state in rule.on]
        if not wanted:
            return []
        body = await self._body(ending, run.job)
        return [self._notice(ending, run.job, n, rule, body) for n, rule in enumerate(wanted)]

    def _center_rules(self) -> list[NoticeRule]:
        on = tuple(self._settings.on)
        rules = [{"webhook": url, "on": on} for url in self._settings.webhooks]
        rules += [{"mail": address, "on": on} for address in self._settings.mails]
        return [msgspec.convert(rule, NoticeRule) for rule in rules]

    async def _of_job(self, name: str) -> tuple[NoticeRule, ...]:
        try:
            return (await self._store.jobs.get(name)).job.notices
        except UnknownJob:
            return ()

    async def _body(self, ending: RunEnding, job: str) -> bytes:
        ledger = await self._store.ledgers.read(ending.run)
        data = {
            "run": ending.run,
            "job": job,
            "state": ending.state,
            "reason": mask_text(ending.reason),
            "ledger": ledger,
        }
        return msgspec.json.encode(
            {"type": f"run.{ending.state}", "timestamp": ending.at, "data": data}
        )

    def _notice(self, ending: RunEnding, job: str, n: int, rule: NoticeRule, body: bytes) -> Notice:
        kind, target = ("webhook", rule.webhook) if rule.webhook else ("mail", rule.mail)
        secret = rule.secret or self._settings.secret if rule.webhook else ""
        name = f"msg_{ending.id}_{n}_{self._rng.getrandbits(64):016x}"
        now = self._clock.now()
        return Notice(name, ending.run, job, kind, target, secret, body, "waiting", 0, now, now)

    async def _tell(self, notice: Notice) -> None:
        try:
            secret = await asyncio.to_thread(self._secret_of, notice)
            await self._transport(notice.kind).deliver(notice, secret)
        except SkepError as error:
            await self._failed(notice, error)
        except Exception:
            log.exception("unexpected error in notice %s", notice.id)
            await self._failed(notice, Unavailable("unexpected error; see the center's log"))
        else:
            await self._store.notices.told(notice.id)

    def _secret_of(self, notice: Notice) -> bytes:
        if notice.secret in self._own:
            raise ConfigurationError(f"the secret {notice.secret!r} belongs to the center")
        return read_secret(self._secrets, notice.secret, self._stored)

    def _transport(self, kind: str) -> NoticeTransport:
        if kind not in self._transports:
            raise ConfigurationError(f"this center cannot send by {kind}; set notices.mail_server")
        return self._transports[kind]

    async def _failed(self, notice: Notice, error: SkepError) -> None:
        now, delay = self._clock.now(), BACKOFF.delay(notice.tries, self._rng)
        hopeless = not isinstance(error, Unavailable) or notice.tries >= TRIES
        log.warning("notice %s of run %s: %s", notice.id, notice.run, error.detail)
        again_at = None if hopeless else now + delay
        await self._store.notices.failed(notice.id, error.detail, again_at)
        if hopeless:
            told = f"{notice.kind} to {hidden_target(notice.target)}: {error.detail}"
            await self._store.alerts.raise_(ALERT, notice.job[:100], told, now)


def read_secret(folder: Path, name: str, stored: StoredSecret = nothing_stored) -> bytes:
    """The secret; b"" for no name. A file wins over a stored secret of the same name: what works
    today is not changed by a call of the API. Raises ConfigurationError, which never shows what was
    read."""
    if not name:
        return b""
    if not (folder / Path(name).name).exists() and (value := stored(name)) is not None:
        return value
    try:
        secret = (folder / Path(name).name).read_bytes().strip()
    except OSError as error:
        raise ConfigurationError(f"cannot read the secret {name!r}: {error.strerror}") from error
    if not secret:
        raise ConfigurationError(f"the secret {name!r} is empty")
    return secret


def hidden_target(target: str) -> str:
    """A displayable address: paths of webhooks often contain a key."""
    parts = urlsplit(target) if "://" in target else None
    return f"{parts.scheme}://{parts.hostname}/***" if parts else target


def problems_of(rule: NoticeRule) -> str:
    """Why a rule is not valid; "" = it is valid."""
    if bool(rule.webhook) == bool(rule.mail):
        return "needs either `webhook` or `mail`"
    if rule.mail:
        return "" if is_mail_address(rule.mail) else f"{rule.mail!r} is not a mail address"
    if not rule.webhook.isprintable() or " " in rule.webhook:
        return "the webhook is not a URL"
    parts = urlsplit(rule.webhook)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return "the webhook is not an http or https URL"
    return ""


def is_mail_address(text: str) -> bool:
    """False for characters that could end a mail header or an SMTP command."""
    name, at, host = text.rpartition("@")
    plain = text.isascii() and text.isprintable() and not set(text) & set(" <>,;:\"'()[]\\")
    return bool(name and at and host and plain)
