"""URLs of repositories: only what is safe for git passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.downloaders.git.pinned import pinned_to
from skep.downloaders.git.program import GitFailed, GitProgram
from skep.downloaders.git.remote import GitRemote, is_ref, parse_remote
from skep.testing.needs import needs


@pytest.mark.parametrize(
    "url",
    [
        "ext::sh -c touch% /tmp/x",
        "fd::0",
        "--upload-pack=touch /tmp/x",
        "-oProxyCommand=x",
        "http://example.org/a",
        "ftp://example.org/a",
        "https://user:secret@example.org/a",
        "https://-oProxyCommand=x/a",
        "ssh://-oProxyCommand=x/a",
        "ssh://git@-x/a",
        "ssh://-x@example.org/a",
        "https:///a",
        "https://exa mple.org/a",
        "https://example.org/a?x=1",
        "https://example.org/a#x",
        "https://example.org/a;touch",
        "https://example.org/$(touch)",
        "https://example.org:99999/a",
        "https://[::1/a",
        "file://host/a",
        "file:///",
        "git@example.org:a/b.git",
        "",
    ],
)
def test_dangerous_urls_are_refused(url: str) -> None:
    """D6: each gets a clear error."""
    with pytest.raises(ValueError, match=r"\w+ \w+"):
        parse_remote(url)


def test_a_refusal_does_not_show_a_password() -> None:
    with pytest.raises(ValueError, match="contains a password") as refused:
        parse_remote("https://user:s3cret@example.org/a")
    assert "s3cret" not in str(refused.value)


def test_parts_of_a_remote() -> None:
    remote = parse_remote("ssh://git@example.org:2222/a/b.git")
    assert (remote.protocol, remote.host, remote.port) == ("ssh", "example.org", 2222)
    assert parse_remote("https://example.org/a").port == 443
    assert parse_remote("file:///srv/a%20b").path == Path("/srv/a b")


@pytest.mark.parametrize("ref", ["-x", "a..b", "a//b", "a/", "a.lock", "a b", "", "a:b", "@{-1}"])
def test_dangerous_refs_are_refused(ref: str) -> None:
    assert not is_ref(ref)


def test_git_connects_to_the_checked_address_under_the_name() -> None:
    """S13: each protocol has its own way."""
    https = pinned_to(GitRemote("https://a.example/r", "a.example"), ["192.0.2.1", "2001:db8::1"])
    assert https.options == ("-c", "http.curloptResolve=a.example:443:192.0.2.1,[2001:db8::1]")
    ssh = pinned_to(GitRemote("ssh://a.example:22/r", "a.example"), ["192.0.2.1"])
    assert ssh.ssh_options == ("-oHostName=192.0.2.1", "-oHostKeyAlias=a.example")
    plain = pinned_to(GitRemote("git://a.example/r", "a.example"), ["2001:db8::1"])
    assert plain.url == "git://[2001:db8::1]:9418/r"
    assert plain.environment == {"GIT_OVERRIDE_VIRTUAL_HOST": "a.example:9418"}


async def test_git_sees_no_settings_of_the_machine_and_no_secret_in_its_arguments(
    tmp_path: Path,
) -> None:
    """D6: the environment is complete; a secret is configuration, not an argument."""
    needs("git")
    (tmp_path / ".gitconfig").write_text("[alias]\n  x = !touch proof\n")
    program = GitProgram({"PATH": "/usr/bin:/bin", "GIT_DIR": "/nowhere"})
    found = await program.run(
        "config", "--list", "--show-scope", home=tmp_path, secret={"http.extraHeader": "A: secret"}
    )
    lines = found.decode().splitlines()
    assert all(line.startswith("command\t") for line in lines)
    assert "command\thttp.extraheader=A: secret" in lines
    assert "command\tprotocol.allow=never" in lines


async def test_output_without_end_is_cut_off(tmp_path: Path) -> None:
    needs("git")
    with pytest.raises(GitFailed, match="more than 10 bytes"):
        await GitProgram({}).run("help", "--all", home=tmp_path, output=10)


async def test_a_command_without_a_remote_may_use_no_protocol(tmp_path: Path) -> None:
    needs("git")
    with pytest.raises(GitFailed, match="not allowed"):
        await GitProgram({}).run("ls-remote", "--", f"file://{tmp_path}", home=tmp_path)


def test_pinned_host_keys_are_the_only_ones(tmp_path: Path) -> None:
    program = GitProgram({}, known_hosts=tmp_path / "known hosts")
    remote = pinned_to(GitRemote("ssh://a.example/r", "a.example"), ["192.0.2.1"])
    command = program._environment(tmp_path, remote, {})["GIT_SSH_COMMAND"]
    assert f"'-oUserKnownHostsFile={tmp_path}/known hosts'" in command
    assert "-oGlobalKnownHostsFile=/dev/null" in command
    assert "-oStrictHostKeyChecking=yes" in command
