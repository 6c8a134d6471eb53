"""Stored secrets through the API and the command line: written, used, never shown (S13)."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from skep.access.secret_keys import SecretKeys
from skep.access.stored_secrets import StoredSecrets
from skep.cli.main import run
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.polling import until

VALUE = "s3cret-value-ünï"


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    async with running_center(tmp_path / "data") as running:
        yield running


async def put(center: RunningCenter, name: str, **body: Any) -> Any:
    return await center.admin.put(f"/api/v1/secrets/{name}", {"value": VALUE, **body})


async def test_no_answer_log_or_audit_row_has_a_value(
    center: RunningCenter, caplog: pytest.LogCaptureFixture
) -> None:
    """S13: write-only; the audit row says who and what."""
    stored = await put(center, "registry")
    assert stored.status == 200
    assert stored.json()["use"] == "apps"
    answers = [stored.content]
    listed = await center.admin.get("/api/v1/secrets")
    assert [one["name"] for one in listed.json()["items"]] == ["registry"]
    rotated = await center.admin.post("/api/v1/secret-rotations", {})
    assert rotated.json()["secrets"] == 1
    changed = await put(center, "registry", use="notices")
    gone = await center.admin.send("DELETE", "/api/v1/secrets/registry")
    assert gone.status == 200
    audit = await center.admin.get("/api/v1/audit?limit=100")
    actions = [(row["action"], row["object"]) for row in audit.json()["items"]]
    for action in ("set_secret", "delete_secret"):
        assert (action, "secret:registry") in actions
    assert ("rotate_secrets", "") in actions
    answers += [one.content for one in (listed, rotated, changed, gone, audit)]
    shown = b"".join(answers).decode() + caplog.text
    assert "s3cret" not in shown
    assert (await center.admin.send("DELETE", "/api/v1/secrets/registry")).status == 404


@pytest.mark.parametrize(
    ("name", "body", "text"),
    [
        ("a b", {"value": "x"}, "not a valid name of a secret"),
        ("-x", {"value": "x"}, "not a valid name of a secret"),
        ("a", {"value": ""}, "value"),
        ("a", {"value": "x\0y"}, "without NUL"),
        ("a", {"value": "ü" * 40000}, "at most 65536 bytes"),
        ("a", {"value": "x", "use": "git"}, "use"),
        ("a", {"use": "apps"}, "value"),
        ("a", {"value": "x", "more": 1}, "more"),
    ],
)
async def test_bad_input_changes_nothing(
    center: RunningCenter, name: str, body: dict[str, Any], text: str
) -> None:
    refused = await center.admin.put(f"/api/v1/secrets/{name.replace(' ', '%20')}", body)
    assert refused.status == 400
    assert text in refused.problem().detail
    assert (await center.admin.get("/api/v1/secrets")).json()["items"] == []
    assert not (Path(center.services.settings.data) / "secret.keys").exists()


async def test_a_notice_is_signed_with_a_stored_secret(center: RunningCenter) -> None:
    """The pair of notices and stored secrets: set by the API, used for a signature."""
    await put(center, "hook-key", use="notices")
    notifier = center.services.notifier
    signed = await asyncio.to_thread(notifier._secret_of, _notice("hook-key"))
    expected = hmac.digest(VALUE.encode(), b"body", hashlib.sha256)
    assert hmac.digest(signed, b"body", hashlib.sha256) == expected


def _notice(secret: str) -> Any:
    from skep.model.jobs.notice import Notice

    return Notice("n", "r", "j", "webhook", "https://a.test/", secret, b"", "waiting", 0, 0.0, 0.0)


async def test_a_job_may_name_a_stored_secret(center: RunningCenter) -> None:
    """The pair of applications and stored secrets: checked when the job is stored."""
    part = {"image": "docker.io/library/busybox:1", "secrets": {"TOKEN": "registry"}}
    document = {"name": "j", "app": part}
    missing = await center.admin.put("/api/v1/jobs/j", document)
    assert "cannot read the secret 'registry'" in missing.problem().detail
    await put(center, "registry", use="notices")
    other_use = await center.admin.put("/api/v1/jobs/j", document)
    assert "cannot read the secret 'registry'" in other_use.problem().detail
    await put(center, "registry")
    stored = await center.admin.put("/api/v1/jobs/j", document)
    assert stored.status < 300, stored.content


async def test_a_center_without_the_key_is_not_ready(center: RunningCenter) -> None:
    """It says which key it needs, and is ready when the key is back, without a restart."""
    key = (await put(center, "registry")).json()["key"]
    ready = await center.admin.get("/readyz?verbose")
    assert ready.status == 200
    file = Path(center.services.settings.data) / "secret.keys"
    file.rename(file.with_name("away"))
    lost = await center.admin.get("/readyz")
    assert lost.status == 503
    (why,) = [
        one["detail"] for one in json.loads(lost.content)["checks"] if one["name"] == "secrets"
    ]
    assert f"need the key {key}" in why
    file.with_name("away").rename(file)
    assert (await center.admin.get("/readyz")).status == 200


async def test_other_centers_know_a_secret_within_seconds(center: RunningCenter) -> None:
    """Another center with the same key stores a secret; the loop of this one finds it."""
    await put(center, "first")
    services = center.services
    keys = SecretKeys(Path(services.settings.data) / "secret.keys")
    other = StoredSecrets(services.store, keys, services.clock)
    await other.set("registry", "apps", b"from elsewhere", "")
    found = await until(lambda: services.people.secrets.read("registry", "apps"))
    assert found == b"from elsewhere"


async def test_a_backup_has_the_secrets_and_not_the_key(
    center: RunningCenter, tmp_path: Path
) -> None:
    await put(center, "registry")
    data = Path(center.services.settings.data)
    line = (data / "secret.keys").read_bytes().split()[0]
    words = ["backup", str(tmp_path / "copy"), "--data", str(data), "--json"]
    assert await asyncio.to_thread(run, words) == 0
    files = [path for path in (tmp_path / "copy").rglob("*") if path.is_file()]
    assert not [path for path in files if line in path.read_bytes() or path.name == "secret.keys"]
    assert b"registry" in b"".join(path.read_bytes() for path in files)


async def test_the_command_line(center: RunningCenter) -> None:
    """A value comes from standard input; there is no argument for it."""
    data = center.services.settings.data
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SKEP_")}
    environment = {**kept, "SKEP_DATA": data, "NO_COLOR": "1", "SKEP_CENTER": center.url}

    async def skep(*words: str, text: str = "") -> tuple[int, str, str]:
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "skep", "secret", *words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )
        out, err = await child.communicate(text.encode())
        return child.returncode or 0, out.decode(), err.decode()

    code, out, err = await skep("set", "registry", text=f"{VALUE}\n")
    assert (code, "stored registry for apps" in out) == (0, True), err
    assert center.services.people.secrets.read("registry", "apps") == VALUE.encode()
    code, _, err = await skep("set", "registry")
    assert (code, "no value on standard input" in err) == (2, True)
    code, out, _ = await skep("ls", "--json")
    assert [one["name"] for one in json.loads(out)["items"]] == ["registry"]
    code, out, _ = await skep("rotate", "--json")
    assert json.loads(out)["secrets"] == 1
    code, out, _ = await skep("rm", "registry")
    assert (code, out.strip()) == (0, "removed registry")
    code, out, _ = await skep("ls")
    assert "no secrets are stored" in out
