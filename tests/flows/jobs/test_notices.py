"""Ends of runs are told: signed webhooks and mail, to real servers that fail now and then."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from skep.jobs.endings import notices
from skep.jobs.endings.notice_transports import signature
from skep.model.jobs.notice import RunEnding
from skep.model.run import Run, RunSettings
from skep.model.states import RunState
from skep.runtime.backoff import Backoff
from skep.store.sql.store import SqlStore
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.grounds.jobs import until_found

KEY = b"a secret that nobody is shown"
LOOPBACK = ["127.0.0.0/8"]


class Hook:
    """A receiver as Standard Webhooks describes it: it believes nothing that is not signed."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.forged = 0
        #: Answers to come, in order; then 200.
        self.answers: list[int] = []
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        signed = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode()
        mac = hmac.new(KEY, signed + body, hashlib.sha256).digest()
        wanted = f"v1,{base64.b64encode(mac).decode()}"
        if not hmac.compare_digest(wanted, request.headers.get("webhook-signature", "")):
            self.forged += 1
        told = msgspec.json.decode(body)
        self.calls.append({"id": request.headers["webhook-id"], "body": told})
        return web.Response(status=self.answers.pop(0) if self.answers else 200, text="so it is")


@pytest.fixture
async def hook() -> AsyncIterator[Hook]:
    receiver = Hook()
    app = web.Application()
    app.router.add_post("/hook/s3cret-path", receiver.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    receiver.url = f"http://127.0.0.1:{port}/hook/s3cret-path"
    yield receiver
    await runner.cleanup()


class MailServer:
    """SMTP, as much of it as a mail needs."""

    def __init__(self) -> None:
        self.mails: list[str] = []
        self.port = 0
        #: Answers to RCPT TO, in order; then 250.
        self.answers: list[int] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def say(line: str) -> None:
            writer.write(f"{line}\r\n".encode())

        say("220 here")
        while line := (await reader.readline()).decode().strip():
            word = line.split()[0].upper()
            if word == "DATA":
                say("354 go on")
                self.mails.append((await reader.readuntil(b"\r\n.\r\n")).decode())
                say("250 kept")
            elif word == "RCPT" and self.answers:
                say(f"{self.answers.pop(0)} not now")
            elif word == "QUIT":
                say("221 bye")
                break
            else:
                say("250 fine")
        await writer.drain()
        writer.close()


@asynccontextmanager
async def mail_server() -> AsyncIterator[MailServer]:
    mailbox = MailServer()
    server = await asyncio.start_server(mailbox.serve, "127.0.0.1", 0)
    mailbox.port = server.sockets[0].getsockname()[1]
    async with server:
        yield mailbox


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next try is due at once; the tests say when it is made."""
    monkeypatch.setattr(notices, "BACKOFF", Backoff(first=1e-9, cap=1e-9))


def give_secret(folder: Path) -> None:
    (folder / "secrets").mkdir(parents=True)
    (folder / "secrets" / "hook-key").write_bytes(KEY + b"\n")


async def told(center: RunningCenter) -> None:
    """Until the outbox has nothing that is due."""
    async with asyncio.timeout(20):
        while await center.services.notifier.step() or await waiting(center):
            pass


async def waiting(center: RunningCenter) -> bool:
    found = await center.services.store.notices.recent(100)
    return any(notice.state == "waiting" for notice in found)


async def states(center: RunningCenter) -> list[tuple[str, int]]:
    items = (await center.admin.get("/api/v1/notices")).json()["items"]
    return [(item["state"], item["tries"]) for item in items]


async def test_a_failed_run_is_told_and_signed(tmp_path: Path, hook: Hook) -> None:
    """Issue 4.7, fault 67: id, timestamp and HMAC of the raw body; tried until it is taken."""
    give_secret(tmp_path)
    hook.answers = [500, 429]
    flags: dict[str, Any] = {"notices_webhooks": [hook.url], "notices_secret": "hook-key"}
    async with running_center(tmp_path, egress_allow=LOOPBACK, **flags) as center:
        await center.open_run("r")
        await center.put("r", ["http://127.0.0.1/"])
        await center.services.intake.move("r", RunState.FAILED, "its spider\nbroke")
        await told(center)
        assert (len(hook.calls), hook.forged) == (3, 0)
        assert len({call["id"] for call in hook.calls}) == 1, "one id however often it is sent"
        body = hook.calls[-1]["body"]
        assert (body["type"], body["data"]["run"]) == ("run.failed", "r")
        assert body["data"]["ledger"]["accepted"] == 1
        assert await states(center) == [("told", 3)]
        await center.admin.post("/api/v1/runs/r/continue")
        await center.admin.post("/api/v1/runs/r/finish")
        await told(center)
        assert len(hook.calls) == 3, "finished is not sent unless a rule asks for it"
        everything = (await center.admin.get("/api/v1/notices")).content
        assert b"s3cret-path" not in everything
        assert KEY not in everything


async def test_jobs_name_their_own(tmp_path: Path, hook: Hook) -> None:
    """Issue 4.7: per job, with its own secret and ends; validated with the document."""
    give_secret(tmp_path)
    async with running_center(tmp_path, egress_allow=LOOPBACK) as center:
        rule = {"webhook": hook.url, "on": ["finished"], "secret": "hook-key"}
        document = {"name": "j", "requests": ["http://127.0.0.1:9/"], "notices": [rule]}
        bad = {**document, "notices": [{}, {"mail": "a@b\r\nBcc: x"}, {"webhook": "ftp://x"}]}
        refused = (await center.admin.put("/api/v1/jobs/j", bad)).problem()
        assert [f"notices[{n}]" in refused.detail for n in range(3)] == [True] * 3
        assert (await center.admin.put("/api/v1/jobs/j", document)).status < 300
        await center.admin.put("/api/v1/runs/r", {"job": "j"})
        await center.admin.post("/api/v1/runs/r/finish")
        await told(center)
        assert [call["body"]["type"] for call in hook.calls] == ["run.finished"]
        assert hook.forged == 0


async def _tried(center: RunningCenter, count: int) -> list[Any]:
    """Notices that were tried, when there are as many; the center's own loop may try them too."""
    await center.services.notifier.step()
    found = [one for one in await center.services.store.notices.recent(10) if one.tries]
    return found if len(found) == count else []


async def test_a_webhook_obeys_the_egress_rules(tmp_path: Path, hook: Hook) -> None:
    """Fault 67 and the guard: an inner address, by number or by name, is not called."""
    by_name = hook.url.replace("127.0.0.1", "localhost")
    flags: dict[str, Any] = {"notices_webhooks": [hook.url, by_name], "notices_on": ["cancelled"]}
    async with running_center(tmp_path, egress_deny=["127.0.0.0/8", "::1/128"], **flags) as center:
        await center.open_run("r")
        await center.admin.post("/api/v1/runs/r/cancel")
        found = await until_found(lambda: _tried(center, 2))
        assert all("not allowed" in notice.error for notice in found)
        assert len(found) == 2
        assert hook.calls == []


async def test_what_cannot_be_told_is_given_up_and_shown(tmp_path: Path, hook: Hook) -> None:
    """Issue 4.7: 410 is never; a secret that is not there is named, not shown."""
    hook.answers = [410]
    rules: dict[str, Any] = {"notices_webhooks": [hook.url], "notices_on": ["finished"]}
    async with running_center(tmp_path, egress_allow=LOOPBACK, **rules) as center:
        await center.open_run("r")
        await center.admin.post("/api/v1/runs/r/finish")
        await told(center)
        assert await states(center) == [("given up", 1)]
        alerts = (await center.admin.get("/api/v1/alerts")).json()["items"]
        assert [alert["kind"] for alert in alerts] == ["notice_failed"]
        assert "s3cret-path" not in alerts[0]["detail"]


async def test_a_mail_comes_through(tmp_path: Path) -> None:
    """Issue 4.7: by SMTP; a server that is busy is asked again, no line is smuggled in."""
    async with mail_server() as mailbox:
        mailbox.answers = [451]
        flags = {
            "notices_mails": ["ann@example.com"],
            "notices_on": ["finished"],
            "notices_mail_server": f"smtp://127.0.0.1:{mailbox.port}",
        }
        async with running_center(tmp_path, **flags) as center:
            await center.open_run("r")
            await center.services.store.runs.move("r", RunState.FINISHED, "done\r\nBcc: eve@x", 1.0)
            await told(center)
            (mail,) = mailbox.mails
            head, _, text = mail.partition("\r\n\r\n")
            assert "Subject: [skep] r: run r finished" in head
            assert "Bcc" not in head
            assert "Run r of r is finished." in text
            assert await states(center) == [("told", 2)]


async def test_an_end_that_no_center_saw_is_told_later(tmp_path: Path, hook: Hook) -> None:
    """Durable: the end is on disk with the run, whichever process dies before it is sent."""
    store = SqlStore(f"sqlite:///{tmp_path / 'skep.db'}")
    await store.open()
    await store.runs.create(Run("r", "r", RunState.RUNNING, RunSettings(), 1.0))
    await store.runs.move("r", RunState.FAILED, "broke", 2.0)
    await store.close()
    flags: dict[str, Any] = {"notices_webhooks": [hook.url]}
    async with running_center(tmp_path, egress_allow=LOOPBACK, **flags) as center:
        await told(center)
        assert await states(center) == [("told", 1)]
    assert [call["body"]["data"]["reason"] for call in hook.calls] == ["broke"]


async def test_a_notice_holds_no_credential(tmp_path: Path, hook: Hook) -> None:
    """S4: the reason of an end may name a URL with a login; notices leave the center."""
    flags: dict[str, Any] = {"notices_webhooks": [hook.url]}
    async with running_center(tmp_path, egress_allow=LOOPBACK, **flags) as center:
        await center.open_run("r")
        reason = "could not fetch http://u:C4nary@h/?token=C4nary"
        await center.services.store.runs.move("r", RunState.FAILED, reason, 1.0)
        await told(center)
    (call,) = hook.calls
    assert call["body"]["data"]["reason"] == "could not fetch http://***@h/?token=***"


async def test_the_mail_password_signs_no_notice(tmp_path: Path, hook: Hook) -> None:
    """S11: also where a job with such a rule was kept by an earlier version."""
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "mail").write_text("short")
    flags = {"notices_mail_secret": "mail"}
    async with running_center(tmp_path, egress_allow=LOOPBACK, **flags) as center:
        document = {"requests": ["http://127.0.0.1:9/"], "notices": [{"webhook": hook.url}]}
        assert (await center.admin.put("/api/v1/jobs/j?test=false", document)).status == 200
        kept = (await center.services.store.jobs.get("j")).job
        (rule,) = kept.notices
        notifier = center.services.notifier
        ending = RunEnding(1, "r", "failed", "", 1.0)
        stolen = msgspec.structs.replace(rule, secret="mail")
        notice = notifier._notice(ending, "j", 0, stolen, b"{}")
        await notifier._tell(notice)
        assert (hook.calls, hook.forged) == ([], 0)
        alerts = (await center.admin.get("/api/v1/alerts")).json()["items"]
        assert "the secret 'mail' belongs to the center" in str(alerts)


def test_the_signature_is_the_one_of_the_standard() -> None:
    """The worked example of Standard Webhooks."""
    secret = b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    body = b'{"test": 2432232314}'
    signed = signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


async def test_an_alert_is_told_by_webhook_and_mail(tmp_path: Path, hook: Hook) -> None:
    """Each change of state once, with masked credentials; a subject cannot end a mail's header."""
    give_secret(tmp_path)
    subject = "shop\r\nBcc: thief@example.com"
    async with mail_server() as mailbox:
        flags: dict[str, Any] = {
            "notices_webhooks": [hook.url],
            "notices_secret": "hook-key",
            "notices_mails": ["ann@example.com"],
            "notices_mail_server": f"smtp://127.0.0.1:{mailbox.port}",
        }
        async with running_center(tmp_path, egress_allow=LOOPBACK, **flags) as center:
            services = center.services
            now, detail = services.clock.now(), "http://u:secret@h/ is gone"
            await services.store.alerts.raise_("archive_lost", subject, detail, now)
            await services.monitoring.monitor.step()
            await until_found(lambda: _both(hook, mailbox))
            await services.monitoring.monitor.step()
            await told(center)
            assert (len(hook.calls), hook.forged) == (1, 0)
            (alert,) = hook.calls[0]["body"]["data"]["alerts"]
            assert alert["subject"] == subject
            assert "secret" not in alert["detail"]
            (mail,) = mailbox.mails
            head, _, text = mail.partition("\r\n\r\n")
            assert "Subject: [skep] archive_lost firing: shop Bcc: thief@example.com" in head
            assert "\nBcc:" not in head
            assert "is gone" in text


async def _both(hook: Hook, mailbox: MailServer) -> bool:
    return bool(hook.calls and mailbox.mails)
