"""Assembles the notifier of one center: its transports, and where secrets are.

Run once when a center is built. Settings that cannot work must fail here, at the start.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random

from skep.access.stored_secrets import StoredSecrets
from skep.errors import ConfigurationError
from skep.jobs.apps.secrets import AppSecrets
from skep.jobs.definitions.connection_limits import job_limits
from skep.jobs.endings.notice_transports import MailTransport, WebhookTransport
from skep.jobs.endings.notices import NoticeTransport, Notifier, problems_of, read_secret
from skep.model.jobs.notice import NoticeRule
from skep.runtime.clock import Clock
from skep.settings import Settings
from skep.store.ports import Store

ENDS = frozenset({"finished", "failed", "cancelled"})


def build_notifier(
    settings: Settings, store: Store, clock: Clock, rng: Random, stored: StoredSecrets
) -> Notifier:
    """Raises ConfigurationError for settings that cannot work."""
    said = settings.notices
    _check(settings)
    secrets = Path(settings.data) / "secrets"
    transports: dict[str, NoticeTransport] = {
        "webhook": WebhookTransport(job_limits(settings).hosts, clock)
    }
    if said.mail_server:
        password = read_secret(secrets, said.mail_secret)
        transports["mail"] = MailTransport(said.mail_server, said.mail_from, password)
    own, read = AppSecrets.of(settings).unsigned, partial(stored.read, use="notices")
    return Notifier(said, store, transports, secrets, clock, rng, own, read)


def _check(settings: Settings) -> None:
    said = settings.notices
    if unknown := set(said.on) - ENDS:
        raise ConfigurationError(
            f"notices.on: {min(unknown)!r} is not valid; use some of {sorted(ENDS)}"
        )
    rules = [("webhooks", NoticeRule(webhook=url)) for url in said.webhooks]
    rules += [("mails", NoticeRule(mail=address)) for address in said.mails]
    for name, rule in rules:
        if problem := problems_of(rule):
            raise ConfigurationError(f"notices.{name}: {problem}")
    if said.mails and not said.mail_server:
        raise ConfigurationError("notices.mails needs notices.mail_server")
