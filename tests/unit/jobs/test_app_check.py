"""What `app:` in a document may say, and what is told about it (D1, A8)."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from skep.errors import ConfigurationError
from skep.jobs.apps.package_source import git_source
from skep.jobs.apps.secrets import AppSecrets
from skep.jobs.definitions.job_check import Checker, linter
from skep.jobs.definitions.masked_jobs import hidden
from skep.jobs.request_validation import Validator
from skep.model.jobs.job import Job
from skep.model.run import RunSettings
from skep.settings import load

PACKAGE = {"package": "tool", "command": ["./tool"]}
IMAGE = {"image": "registry.example.org:5000/team/app:1.2"}


@pytest.fixture
def checker(tmp_path: Path) -> Checker:
    folder, secrets = tmp_path / "jobs", tmp_path / "secrets"
    (folder / "tool").mkdir(parents=True)
    (folder / "a-1-py3-none-any.whl").write_bytes(b"")
    (folder / "b.zip").write_bytes(b"")
    (folder / "c.txt").write_bytes(b"")
    (folder / "out").symlink_to(tmp_path)
    secrets.mkdir()
    (secrets / "apps").mkdir()
    (secrets / "apps" / "key").write_text("hush")
    (secrets / "s3").write_text("of the center")
    (secrets / "older").write_text("of an application")
    (secrets / "empty").write_text("\n")
    (secrets / "bytes").write_bytes(b"\xff\xfe")
    known = AppSecrets(secrets, frozenset({"s3"}))
    return Checker(Validator(("http",), Random(1), ("http",)), ("http",), folder, known)


def told(checker: Checker, app: Any = PACKAGE, **more: Any) -> list[str]:
    job, faults = checker.judge({"name": "j", "app": app, **more})
    assert (job is None) == bool(faults)
    return [str(fault) for fault in faults]


def paths(checker: Checker, app: Any = PACKAGE, **more: Any) -> list[str]:
    return [line.partition(":")[0] for line in told(checker, app, **more)]


def made(checker: Checker, app: Any, **more: Any) -> Job:
    job, faults = checker.judge({"name": "j", "app": app, **more})
    assert job is not None, faults
    return job


@pytest.mark.parametrize(
    "package", ["tool", "a-1-py3-none-any.whl", "b.zip", "git+https://git.example.org/a/b.git@v1"]
)
def test_packages_that_are_taken(checker: Checker, package: str) -> None:
    assert told(checker, {**PACKAGE, "package": package}) == []


@pytest.mark.parametrize(
    "package",
    ["../jobs/tool", "/etc", "none", "c.txt", "out", "out/secrets", "-x.whl", "tool\0"],
)
def test_packages_outside_the_folder_or_of_no_kind(checker: Checker, package: str) -> None:
    """No escape by `..`, by an absolute path or by a link."""
    assert paths(checker, {**PACKAGE, "package": package}) == ["app.package"]


@pytest.mark.parametrize(
    "image",
    ["alpine", "alpine:3.20", "ghcr.io/a/b-c_d.e", "localhost:5000/x@sha256:" + "0" * 64],
)
def test_images_that_are_taken(checker: Checker, image: str) -> None:
    assert told(checker, {"image": image}) == []


@pytest.mark.parametrize(
    "image",
    ["-v", "--privileged", "a b", "A", "a:-x", "a//b", "a;b", "a@sha256:1", "http://a", "a\n"],
)
def test_images_that_could_be_something_else(checker: Checker, image: str) -> None:
    assert paths(checker, {"image": image}) == ["app.image"]


@pytest.mark.parametrize(
    ("package", "url", "ref"),
    [
        ("git+https://h.example/a.git@main", "https://h.example/a.git", "main"),
        ("git+ssh://git@h.example:22/a/b@v1.0", "ssh://git@h.example:22/a/b", "v1.0"),
        ("git+git://h.example/a@release/x/1", "git://h.example/a", "release/x/1"),
        ("git+https://[2001:db8::1]/a@" + "0f" * 20, "https://[2001:db8::1]/a", "0f" * 20),
    ],
)
def test_git_sources(package: str, url: str, ref: str) -> None:
    source = git_source(package)
    assert (source.url, source.ref) == (url, ref)


@pytest.mark.parametrize(
    "package",
    [
        "git+https://h.example/a",
        "git+https://h.example/a@",
        "git+https://h.example/a@--upload-pack=x",
        "git+https://h.example/a@a..b",
        "git+https://h.example/a@x.lock",
        "git+https://h.example/a@x y",
        "git+http://h.example/a@v1",
        "git+ext::sh -c id@v1",
        "git+fd::17@v1",
        "git+https://u:p@h.example/a@v1",
        "git+ssh://-oProxyCommand=id/a@v1",
        "git+ssh://-x@h.example/a@v1",
        "git+https://h.example/a?x=1@v1",
        "git+https://h.example:99999/a@v1",
        "git+https:///a@v1",
        "git+file://host/a@v1",
        "git+https://h.example/a b@v1",
    ],
)
def test_git_sources_that_git_never_sees(package: str) -> None:
    """Fault 52: no option, no other protocol, no password, no command."""
    with pytest.raises(ValueError, match=r"."):
        git_source(package)


def test_a_repository_lies_in_the_folder_for_jobs(checker: Checker, tmp_path: Path) -> None:
    package = f"git+file://{tmp_path}/jobs/tool@main"
    assert told(checker, {**PACKAGE, "package": package}) == []
    for place in (tmp_path, tmp_path / "jobs" / "out", tmp_path / "jobs" / ".."):
        outside = {**PACKAGE, "package": f"git+file://{place}@main"}
        assert paths(checker, outside) == ["app.package"]


def test_everything_is_told_at_once(checker: Checker) -> None:
    app = {
        "package": "none",
        "image": "-x",
        "command": ["", "a\0"],
        "environment": {"A": "x\0", "KEY": "1"},
        "secrets": {"KEY": "key", "E": "empty", "B": "bytes", "N": "none", "U": "../x"},
    }
    assert paths(checker, app, sinks=["jsonl:x"], settings={"retries": 1}) == [
        "sinks",
        "settings.retries",
        "app",
        "app.image",
        "app.command[0]",
        "app.command[1]",
        "app.package",
        "app.environment.A",
        "app.secrets.KEY",
        "app.secrets.E",
        "app.secrets.B",
        "app.secrets.N",
        "app.secrets.U",
    ]


@pytest.mark.parametrize(
    "more",
    [
        {"requests": ["http://a/"]},
        {"generators": [{"kind": "list", "uris": ["http://a/"]}]},
        {"spider": "m:C"},
        {"sinks": ["jsonl:x"]},
        {"downloader": "http"},
    ],
)
def test_an_application_is_all_that_a_job_does(checker: Checker, more: dict[str, Any]) -> None:
    assert list(more) == paths(checker, IMAGE, **more)


def test_what_an_application_needs(checker: Checker) -> None:
    assert paths(checker, {}) == ["app"]
    assert paths(checker, {"package": "tool"}) == ["app.command"]
    assert paths(checker, {**IMAGE, "commmand": []}) == ["app.commmand"]
    assert told(checker, IMAGE) == []
    assert told(checker, IMAGE, settings={"run_time_limit": 60}) == []


def test_the_secrets_of_the_center_are_not_for_applications(checker: Checker) -> None:
    """S11: what a setting uses is refused; files of older versions still work."""
    assert told(checker, {**IMAGE, "secrets": {"KEY": "key", "OLD": "older"}}) == []
    (fault,) = told(checker, {**IMAGE, "secrets": {"KEY": "s3"}})
    assert fault.startswith("app.secrets.KEY: the secret 's3' belongs to the center")
    assert "DATA/secrets/apps" in fault
    for name in ("apps", "no-such"):
        assert told(checker, {**IMAGE, "secrets": {"KEY": name}})


def test_every_secret_of_the_settings_is_the_centers_own(tmp_path: Path) -> None:
    """S11: the S3 key, the mail password and the key of webhooks, from the settings."""
    (tmp_path / "secrets" / "apps").mkdir(parents=True)
    flags = {"archive.secret": "a", "notices.secret": "b", "notices.mail_secret": "c"}
    secrets = AppSecrets.of(load(flags={"data": str(tmp_path), **flags}))
    for name in ("a", "b", "c", "free"):
        (tmp_path / "secrets" / name).write_text("of the center")
    for name in ("a", "b", "c"):
        with pytest.raises(ConfigurationError, match="belongs to the center"):
            secrets.text(name)
    assert secrets.text("free") == "of the center"
    (tmp_path / "secrets" / "apps" / "a").write_text("of the application")
    assert secrets.text("a") == "of the application", "the folder of its own comes first"


def test_the_secrets_of_the_center_sign_no_notice_of_a_job(tmp_path: Path) -> None:
    """S11: the receiver of a signature could try passwords; the key for notices may sign."""
    flags = {"archive.secret": "a", "notices.secret": "b", "notices.mail_secret": "c"}
    secrets = AppSecrets.of(load(flags={"data": str(tmp_path), **flags}))
    checker = Checker(Validator(("http",), Random(1), ("http",)), ("http",), secrets=secrets)
    found = {}
    for name in ("a", "b", "c", "free"):
        rule = {"webhook": "https://h.example/", "secret": name}
        _, faults = checker.judge({"name": "j", "requests": ["http://h/"], "notices": [rule]})
        found[name] = [fault.path for fault in faults]
    assert found == {"a": ["notices[0].secret"], "b": [], "c": ["notices[0].secret"], "free": []}


def test_secrets_are_named_and_never_shown(checker: Checker) -> None:
    assert told(checker, {**IMAGE, "secrets": {"KEY": "key"}}) == []
    faults = told(checker, {**IMAGE, "secrets": {"B": "bytes", "E": "empty"}})
    assert faults == [
        "app.secrets.B: the secret 'bytes' is not text",
        "app.secrets.E: the secret 'empty' is empty",
    ]


def test_placement_says_how_many(checker: Checker) -> None:
    """A8: n agents of a group and a system; `any` is one."""
    fixed = {"strategy": "fixed", "n": 3, "group": "eu", "os": "Linux"}
    settings = made(checker, PACKAGE, placement=fixed).run_settings(RunSettings())
    assert (settings.downloader, settings.placement.in_words()) == (
        "app",
        "fixed(3) group=eu os=Linux",
    )
    plain = made(checker, IMAGE).run_settings(RunSettings())
    assert (plain.downloader, plain.placement.in_words()) == ("image", "fixed(1)")
    for strategy in ("chained", "hashed"):
        assert paths(checker, IMAGE, placement={"strategy": strategy}) == ["placement.strategy"]


def test_a_viewer_sees_names_of_variables_only(checker: Checker) -> None:
    app = {**IMAGE, "environment": {"A": "secret"}, "secrets": {"KEY": "key"}}
    shown = hidden(made(checker, {**app, "command": ["x", "--url=http://u:pw@h/"]})).app
    assert shown is not None
    assert (shown.environment, shown.secrets) == ({"A": "***"}, {"KEY": "key"})
    assert shown.command == ("x", "--url=http://***@h/")


def test_lint_knows_no_folder() -> None:
    """Without a center the words are checked, not the files."""
    assert told(linter(), {**PACKAGE, "secrets": {"K": "anything"}}) == []
    assert paths(linter(), {**PACKAGE, "package": "../x"}) == ["app.package"]
