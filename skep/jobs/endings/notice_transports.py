"""Sends notices: as a signed POST or as a mail. Run by centers only.

A webhook follows no redirect and connects only to addresses that the egress rules allow: the
rules check the resolved address of the connection, not the name. Mail is sent by the standard
library, in a thread.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import smtplib
import ssl
from email.message import EmailMessage
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from skep.errors import ConfigurationError, Unavailable
from skep.model.jobs.notice import Notice
from skep.runtime.clock import Clock
from skep.streams.host_rules import HostRules

SECONDS = 30.0
#: Status codes after which a webhook is not retried.
HOPELESS = frozenset({404, 410})
_SCHEMES = {"smtp": 25, "smtp+starttls": 587, "smtps": 465}


def signature(secret: bytes, notice: str, timestamp: int, body: bytes) -> str:
    """A signature as in Standard Webhooks: `v1,` and base64 of HMAC-SHA256 over
    id.timestamp.body."""
    signed = f"{notice}.{timestamp}.".encode() + body
    return (
        "v1," + base64.b64encode(hmac.new(key_of(secret), signed, hashlib.sha256).digest()).decode()
    )


def key_of(secret: bytes) -> bytes:
    """The key of `whsec_` and base64; other bytes are the key."""
    if not secret.startswith(b"whsec_"):
        return secret
    try:
        return base64.b64decode(secret.removeprefix(b"whsec_"), validate=True)
    except ValueError as error:
        raise ConfigurationError(
            "a secret that begins with whsec_ must continue in base64"
        ) from error


class WebhookTransport:
    """Signed POSTs."""

    def __init__(self, rules: HostRules, clock: Clock) -> None:
        self._rules = rules
        self._clock = clock

    async def deliver(self, notice: Notice, secret: bytes) -> None:
        # Imported here: most centers have no notice to send when they start.
        from skep.runtime.lazy_certificates import aiohttp
        from skep.streams.checked_http import connector

        try:
            host = urlsplit(notice.target).hostname or ""
        except ValueError as error:
            raise ConfigurationError("the webhook is not a URL") from error
        timeout = aiohttp.ClientTimeout(total=SECONDS)
        try:
            async with (
                aiohttp.ClientSession(connector=connector(self._rules), timeout=timeout) as session,
                session.post(
                    notice.target,
                    data=notice.body,
                    headers=self._headers(notice, secret),
                    allow_redirects=False,
                ) as response,
            ):
                _judge(response.status)
        except aiohttp.InvalidURL as error:
            raise ConfigurationError("the webhook is not a URL") from error
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise Unavailable(f"{host}: {type(error).__name__}") from error

    def _headers(self, notice: Notice, secret: bytes) -> dict[str, str]:
        now = int(self._clock.now())
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "skep",
            "webhook-id": notice.id,
            "webhook-timestamp": str(now),
        }
        if secret:
            headers["webhook-signature"] = signature(secret, notice.id, now, notice.body)
        return headers


def _judge(status: int) -> None:
    """Raises by the status alone: the reason is shown to read-only roles."""
    if 200 <= status < 300:  # noqa: PLR2004 - HTTP status
        return
    raise (ConfigurationError if status in HOPELESS else Unavailable)(f"answered {status}")


def _of_run(told: dict[str, Any]) -> tuple[str, list[str]]:
    """Subject and text about the end of a run."""
    lines = [f"Run {told['run']} of {told['job']} is {told['state']}.", told["reason"], ""]
    lines += [f"{name}: {count}" for name, count in told["ledger"].items()]
    return f"{told['job']}: run {told['run']} {told['state']}", lines


def _of_alerts(told: dict[str, Any]) -> tuple[str, list[str]]:
    """Subject and text about alerts of one kind. A subject of an alert can have any character; one
    that ends a line would be refused by the mail's header."""
    alerts = told["alerts"]
    about = " ".join(alerts[0]["subject"].split()) if len(alerts) == 1 else f"{len(alerts)} alerts"
    lines = [f"{one['subject']}: {one['detail']}" for one in alerts]
    return f"{told['kind']} {told['state']}: {about}", lines


class MailTransport:
    """Sends mails through one server; the Message-ID contains the id of the notice."""

    def __init__(self, server: str, sender: str, password: bytes = b"") -> None:
        parts = urlsplit(server)
        if parts.scheme not in _SCHEMES or not parts.hostname:
            known = ", ".join(f"{scheme}://" for scheme in _SCHEMES)
            raise ConfigurationError(f"notices.mail_server must be one of {known} and a host")
        self._scheme, self._host = parts.scheme, parts.hostname
        self._port = parts.port or _SCHEMES[parts.scheme]
        self._user, self._password = unquote(parts.username or ""), password
        self._sender = sender

    async def deliver(self, notice: Notice, secret: bytes) -> None:  # noqa: ARG002 - none needed
        mail = self._mail(notice)
        try:
            await asyncio.to_thread(self._send, mail)
        except smtplib.SMTPRecipientsRefused as error:
            codes = [code for code, _ in error.recipients.values()]
            kind = ConfigurationError if min(codes) >= 500 else Unavailable  # noqa: PLR2004
            raise kind(f"{self._host} refuses the address ({min(codes)})") from error
        except (OSError, smtplib.SMTPException) as error:
            raise Unavailable(f"{self._host}: {str(error) or type(error).__name__}") from error

    def _mail(self, notice: Notice) -> EmailMessage:
        told: dict[str, Any] = msgspec.json.decode(notice.body)["data"]
        subject, lines = _of_alerts(told) if "alerts" in told else _of_run(told)
        mail = EmailMessage()
        mail["From"], mail["To"] = self._sender, notice.target
        mail["Subject"] = f"[skep] {subject}"
        mail["Message-ID"] = f"<{notice.id}@{self._sender.rpartition('@')[2]}>"
        mail.set_content("\n".join(lines))
        return mail

    def _send(self, mail: EmailMessage) -> None:
        with self._connection() as server:
            if self._user:
                server.login(self._user, self._password.decode())
            server.send_message(mail)

    def _connection(self) -> smtplib.SMTP:
        if self._scheme == "smtps":
            context = ssl.create_default_context()
            return smtplib.SMTP_SSL(self._host, self._port, timeout=SECONDS, context=context)
        server = smtplib.SMTP(self._host, self._port, timeout=SECONDS)
        if self._scheme == "smtp+starttls":
            server.starttls(context=ssl.create_default_context())
        return server
