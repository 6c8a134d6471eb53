"""The settings `notices.*`. Pure data."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from skep.settings.section import Section


class NoticeSettings(Section, frozen=True):
    """Who is notified when a run ends or fails, in addition to the addresses in its job."""

    webhooks: Annotated[tuple[str, ...], Meta(description="URLs that receive a POST.")] = ()
    mails: Annotated[tuple[str, ...], Meta(description="Mail addresses.")] = ()
    on: Annotated[tuple[str, ...], Meta(description="finished, failed, cancelled.")] = ("failed",)
    secret: Annotated[str, Meta(description="File in DATA/secrets that signs webhooks.")] = ""
    mail_server: Annotated[
        str, Meta(description="smtp[+starttls]:// or smtps://USER@HOST:PORT.")
    ] = ""
    mail_secret: Annotated[str, Meta(description="File in DATA/secrets with the password.")] = ""
    mail_from: Annotated[str, Meta(description="Sender of mails.")] = "skep@localhost"
    alerts: Annotated[bool, Meta(description="Whether alerts are sent there, too.")] = True
