"""How notices travel: a signed POST, or a mail. Run by centers only.

A webhook follows no redirect and connects only to addresses that the egress rules allow:
the address is judged that will be connected, whatever its name says. Mail goes out by the
standard library, in a thread.
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
#: Answers that say: never again at this address.
HOPELESS = frozenset({404, 410})
_SCHEMES = {"smtp": 25, "smtp+starttls": 587, "smtps": 465}


def signature(secret: bytes, notice: str, timestamp: int, body: bytes) -> str:
    """As Standard Webhooks has it: `v1,` and base64 of HMAC-SHA256 over id.timestamp.body."""
    signed = f"{notice}.{timestamp}.".encode() + body
    return (
        "v1," + base64.b64encode(hmac.new(key_of(secret), signed, hashlib.sha256).digest()).decode()
    )


def key_of(secret: bytes) -> bytes:
    """`whsec_` and base64, or any other bytes as they are."""
    if not secret.startswith(b"whsec_"):
        return secret
    try:
        return base64.b64decode(secret.removeprefix(b"whsec_"), validate=True)
    except ValueError as error:
        raise ConfigurationError("a secret that begins with whsec_ goes on in base64") from error


class WebhookTransport:
    """Signed POSTs."""

    def __init__(self, rules: HostRules, clock: Clock) -> None:
        self._rules = rules
        self._clock = clock

    async def deliver(self, notice: Notice, secret: bytes) -> None:
        # Here and not at the top: most centers have nothing to tell when they start.
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
            raise ConfigurationError("the webhook is no URL") from error
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
    """By the status alone: people who may only look read why a notice failed."""
    if 200 <= status < 300:  # noqa: PLR2004 - as HTTP has it
        return
    raise (ConfigurationError if status in HOPELESS else Unavailable)(f"answered {status}")


class MailTransport:
    """Mails by one server; each has the notice's id as its own."""

    def __init__(self, server: str, sender: str, password: bytes = b"") -> None:
        parts = urlsplit(server)
        if parts.scheme not in _SCHEMES or not parts.hostname:
            known = ", ".join(f"{scheme}://" for scheme in _SCHEMES)
            raise ConfigurationError(f"notices.mail_server: say {known} and a host")
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
        mail = EmailMessage()
        mail["From"], mail["To"] = self._sender, notice.target
        mail["Subject"] = f"[skep] {told['job']}: run {told['run']} {told['state']}"
        mail["Message-ID"] = f"<{notice.id}@{self._sender.rpartition('@')[2]}>"
        lines = [f"Run {told['run']} of {told['job']} is {told['state']}.", told["reason"], ""]
        lines += [f"{name}: {count}" for name, count in told["ledger"].items()]
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
