"""Stored secrets: encrypted with a key outside of the store, read by their use, rotated."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from skep.access.secret_keys import SecretKeys
from skep.access.stored_secrets import StoredSecrets
from skep.errors import ConfigurationError, NotFound
from skep.jobs.apps.secrets import AppSecrets
from skep.runtime.secret_encryption import NotReadable, decrypt, encrypt, key_id, new_key
from skep.settings import load
from skep.store.sql.store import SqlStore
from skep.testing.clock import ManualClock

VALUE = b"correct horse battery"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    opened = SqlStore(f"sqlite:///{tmp_path / 'skep.db'}")
    await opened.open()
    yield opened
    await opened.close()


def opened(store: SqlStore, file: Path) -> StoredSecrets:
    return StoredSecrets(store, SecretKeys(file), ManualClock())


def test_a_value_is_bound_to_its_key_and_its_name() -> None:
    key = new_key()
    sealed = encrypt(key, VALUE, "secret apps a")
    assert decrypt(key, sealed, "secret apps a") == VALUE
    assert sealed != encrypt(key, VALUE, "secret apps a")
    changed = sealed[:-1] + bytes([sealed[-1] ^ 1])
    for other in (
        (new_key(), sealed, "secret apps a"),
        (key, sealed, "secret apps b"),
        (key, changed, "secret apps a"),
        (key, b"", "secret apps a"),
    ):
        with pytest.raises(NotReadable):
            decrypt(*other)


async def test_the_store_never_has_the_value_or_the_key(store: SqlStore, tmp_path: Path) -> None:
    file = tmp_path / "secret.keys"
    secrets = opened(store, file)
    view = await secrets.set("mail", "notices", VALUE, "anna")
    shown = view.name, view.use, view.changed_by, view.readable
    assert shown == ("mail", "notices", "anna", True)
    assert file.stat().st_mode & 0o777 == 0o600
    await store.close()
    everything = (tmp_path / "skep.db").read_bytes()
    assert b"mail" in everything
    assert VALUE not in everything
    assert file.read_bytes().split()[0] not in everything


async def test_a_secret_is_read_for_its_use_only(store: SqlStore, tmp_path: Path) -> None:
    secrets = opened(store, tmp_path / "k")
    await secrets.set("mail", "notices", VALUE, "")
    assert secrets.read("mail", "notices") == VALUE
    assert secrets.read("mail", "apps") is None
    assert secrets.read("other", "notices") is None


async def test_a_row_that_was_moved_to_another_use_cannot_be_read(
    store: SqlStore, tmp_path: Path
) -> None:
    """Write access to the database alone does not give a secret to another reader."""
    secrets = opened(store, tmp_path / "k")
    await secrets.set("mail", "notices", VALUE, "")
    (row,) = await store.secrets.all()
    await store.secrets.put(replace(row, use="apps"), 10)
    await secrets.look()
    with pytest.raises(ConfigurationError, match="'mail' was changed outside of Skep"):
        secrets.read("mail", "apps")


async def test_without_the_key_a_center_is_not_ready_and_says_why(
    store: SqlStore, tmp_path: Path
) -> None:
    assert await opened(store, tmp_path / "one").check() == "no secrets are stored"
    view = await opened(store, tmp_path / "one").set("a", "apps", VALUE, "")
    other = opened(store, tmp_path / "two")
    with pytest.raises(ConfigurationError, match=f"need the key {view.key}, which .*two"):
        await other.check()
    with pytest.raises(ConfigurationError, match="copy it from the center"):
        await other.set("b", "apps", VALUE, "")
    assert not (tmp_path / "two").exists(), "no second key that the other center does not have"
    assert [one.readable for one in await other.list()] == [False]
    (tmp_path / "two").write_bytes((tmp_path / "one").read_bytes())
    (tmp_path / "two").chmod(0o600)
    assert await other.check() == "1 secrets are stored"
    assert other.read("a", "apps") == VALUE


async def test_rotation_keeps_every_secret_readable(store: SqlStore, tmp_path: Path) -> None:
    secrets = opened(store, tmp_path / "k")
    for name in "abc":
        await secrets.set(name, "apps", VALUE + name.encode(), "")
    before = (await secrets.get("a")).key
    reader = opened(store, tmp_path / "k")
    await reader.look()
    key, count = await secrets.rotate(make_key=True)
    assert (count, key != before) == (3, True)
    assert {row.key for row in await store.secrets.all()} == {key}
    for one in (secrets, reader):
        assert [one.read(name, "apps") for name in "abc"] == [VALUE + n.encode() for n in "abc"]
    assert len((tmp_path / "k").read_bytes().split()) == 2, "the old key still reads a backup"
    assert await secrets.rotate(make_key=False) == (key, 0)


async def test_a_rotation_that_cannot_read_a_secret_changes_nothing(
    store: SqlStore, tmp_path: Path
) -> None:
    secrets = opened(store, tmp_path / "k")
    await secrets.set("a", "apps", VALUE, "")
    rows = await store.secrets.all()
    (tmp_path / "k").unlink()
    with pytest.raises(ConfigurationError, match="need the key"):
        await secrets.rotate(make_key=True)
    assert await store.secrets.all() == rows
    assert not (tmp_path / "k").exists()


async def test_a_secret_set_during_a_rotation_is_not_lost(store: SqlStore, tmp_path: Path) -> None:
    one, other = opened(store, tmp_path / "k"), opened(store, tmp_path / "k")
    for number in range(20):
        await one.set(f"s{number}", "apps", VALUE, "")
    await asyncio.gather(
        one.rotate(make_key=True),
        *(other.set(f"s{number}", "apps", b"newer", "") for number in range(20)),
    )
    await one.rotate(make_key=False)
    assert {one.read(f"s{number}", "apps") for number in range(20)} == {b"newer"}


async def test_removed_secrets_are_gone(store: SqlStore, tmp_path: Path) -> None:
    secrets = opened(store, tmp_path / "k")
    await secrets.set("a", "apps", VALUE, "")
    assert (await secrets.remove("a")).name == "a"
    assert secrets.read("a", "apps") is None
    with pytest.raises(NotFound, match="'a'"):
        await secrets.remove("a")


@pytest.mark.parametrize(
    "content", [b"", b"no key\n", b64encode(bytes(31)), b"\xff\xfe", b64encode(bytes(32)) * 2]
)
def test_a_damaged_key_file_is_named_and_not_shown(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "k"
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(ConfigurationError, match=str(file)) as refused:
        SecretKeys(file).all()
    assert content.decode(errors="replace").strip() not in str(refused.value) or not content


def test_a_key_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    keys = SecretKeys(tmp_path / "k")
    keys.add()
    (tmp_path / "k").chmod(0o644)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        keys.all()


def test_keys_may_come_from_a_command(tmp_path: Path) -> None:
    key = new_key()
    (tmp_path / "printed").write_bytes(b64encode(key))
    keys = SecretKeys(tmp_path / "none", f"cat '{tmp_path}/printed'")
    assert keys.all() == {key_id(key): key}
    with pytest.raises(ConfigurationError, match="secret_key_command gives the keys"):
        keys.add()
    for command in ("false", "/does/not/exist", "echo x", "'"):
        with pytest.raises(ConfigurationError, match="secret_key_command"):
            SecretKeys(tmp_path / "none", command).all()


def test_a_key_file_that_a_backup_would_copy_is_refused(tmp_path: Path) -> None:
    flags = {"data": str(tmp_path), "access.secret_key_file": str(tmp_path / "secrets" / "k")}
    with pytest.raises(ConfigurationError, match="would be part of backups"):
        SecretKeys.of(load(flags=flags))


async def test_a_file_wins_over_a_stored_secret(store: SqlStore, tmp_path: Path) -> None:
    """A set-up with files is not changed by a call of the API; keys of the center stay its own."""
    secrets = opened(store, tmp_path / "k")
    for name in ("a", "b", "s3"):
        await secrets.set(name, "apps", b"stored", "")
    folder = tmp_path / "secrets"
    (folder / "apps").mkdir(parents=True)
    (folder / "apps" / "a").write_text("file\n")
    known = AppSecrets(folder, frozenset({"s3"}), stored=lambda name: secrets.read(name, "apps"))
    assert (known.text("a"), known.text("b")) == ("file", "stored")
    with pytest.raises(ConfigurationError, match="belongs to the center"):
        known.text("s3")
    with pytest.raises(ConfigurationError, match="cannot read the secret 'c'"):
        known.text("c")
