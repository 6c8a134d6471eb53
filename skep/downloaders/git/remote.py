"""Checks the URL of a git repository and the name of a ref. Pure.

A URL or a ref that passes here is safe in git's argument vector: it has an allowed protocol, no
password, and can never look like an option.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

#: Protocols that git may use; callers decide whether `file` is allowed, and where.
PROTOCOLS = ("https", "ssh", "git", "file")
_PORTS = {"https": 443, "ssh": 22, "git": 9418}
_REF = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]{0,199}")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,250}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_PATH = re.compile(r"/[A-Za-z0-9._~/%+@=-]*")


class GitRemote(msgspec.Struct, frozen=True):
    """A repository that git may connect to."""

    url: str
    host: str = ""
    #: Of a `file` URL.
    path: Path | None = None

    @property
    def protocol(self) -> str:
        return self.url.partition(":")[0]

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or _PORTS.get(self.protocol, 0)


def parse_remote(url: str) -> GitRemote:
    """The repository of a URL; raises ValueError, which says what is wrong."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"is not a URL: {error}") from None
    if parts.scheme not in PROTOCOLS:
        known = ", ".join(PROTOCOLS)
        raise ValueError(f"{parts.scheme[:20]!r} is not supported for git; use one of {known}")
    if parts.query or parts.fragment or not _PATH.fullmatch(parts.path):
        raise ValueError("the URL of a repository must have a plain path and nothing after it")
    if parts.scheme == "file":
        return _in_a_folder(url, parts.netloc, parts.path)
    _check_host(parts.netloc, parts.hostname or "", port)
    return GitRemote(url, parts.hostname or "")


def is_ref(ref: str) -> bool:
    """Whether a text is a plain name of a branch, a tag or a commit."""
    odd = ".." in ref or "//" in ref or "/." in ref or ref.endswith(("/", ".", ".lock"))
    return bool(_REF.fullmatch(ref)) and not odd


def _in_a_folder(url: str, netloc: str, path: str) -> GitRemote:
    if netloc or path == "/":
        raise ValueError("write a repository on this machine as file:///PATH")
    return GitRemote(url, path=Path(unquote(path)))


def _check_host(netloc: str, host: str, port: int | None) -> None:
    user, at, place = netloc.rpartition("@")
    if ":" in user:
        raise ValueError("contains a password; use a deploy key or a public repository")
    if at and not _USER.fullmatch(user):
        raise ValueError(f"{user[:50]!r} is not a valid user name")
    bare = place.removesuffix(f":{port}") if port is not None else place
    if not host or not _HOST.fullmatch(bare):
        raise ValueError("has no valid host")
