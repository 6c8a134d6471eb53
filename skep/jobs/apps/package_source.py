"""Parses the source of an application's package: `git+URL@REF` or a wheel. Pure.

Used by centers and by `skep job lint`. `downloaders.git` checks the URL and the ref.
"""

from __future__ import annotations

import re

from skep.downloaders.git.remote import GitRemote, is_ref, parse_remote

#: name-version(-build)?-python-abi-platform.whl
_WHEEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._+!]*-){4,5}[A-Za-z0-9._]+\.whl")


class GitSource(GitRemote, frozen=True):
    """A repository and a branch, a tag or a commit in it."""

    ref: str = ""


def git_source(package: str) -> GitSource:
    """Parse `git+URL@REF`; raises ValueError, which says what is wrong."""
    url, at, ref = package.removeprefix("git+").rpartition("@")
    if not at or not is_ref(ref):
        raise ValueError("must end with @ and a branch, a tag or a commit: git+URL@REF")
    remote = parse_remote(url)
    return GitSource(remote.url, remote.host, remote.path, ref)


def check_wheel_name(name: str) -> None:
    """Raises ValueError for a name that pip would refuse."""
    if not _WHEEL.fullmatch(name):
        raise ValueError(f"{name[:200]!r} is not a valid wheel name")
