"""The refs of a repository, and the command `ls-refs` of protocol version 2. Pure.

The server's answer is hostile until it is parsed: names that could escape a folder, wrong ids, too
many refs and an answer without an end are errors, never refs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256

import msgspec

from skep.downloaders.git.pkt_line import BadPacket, Mark, mark, packet, packets

#: Refs of one repository.
MOST_REFS = 500_000
#: What mirrors keep: no refs of pull requests, which can be a hundred times as many.
PREFIXES = ("HEAD", "refs/heads/", "refs/tags/")
_ID = re.compile(rb"[0-9a-f]{40}|[0-9a-f]{64}")
#: As `git check-ref-format`, and without what no file system should get.
_NAME = re.compile(r"refs/[^\x00-\x20\x7f~^:?*\[\\]{1,1000}")
_SHOWN = 80
_SYMREF = b"symref-target:"


class BadAnswer(ValueError):
    """The answer is not a list of refs."""


class TooManyRefs(BadAnswer):
    """The repository has more refs than allowed."""


class Refs(msgspec.Struct, frozen=True):
    """The refs of a repository. `head`: the ref that HEAD names, "" if it names none."""

    ids: dict[str, str]
    head: str = ""

    @property
    def digest(self) -> str:
        """Equal if and only if all refs, their ids and the head are."""
        lines = [f"{self.ids[name]} {name}\n" for name in sorted(self.ids)]
        return sha256("".join((*lines, f"HEAD {self.head}\n")).encode()).hexdigest()


def ls_refs(prefixes: Sequence[str] = PREFIXES) -> bytes:
    """The request that lists the refs with these prefixes."""
    words = ["symrefs", *(f"ref-prefix {prefix}" for prefix in prefixes)]
    return b"".join(
        (
            packet("command=ls-refs"),
            packet("agent=skep"),
            mark(Mark.DELIMITER),
            *map(packet, words),
            mark(Mark.FLUSH),
        )
    )


def parse_ls_refs(data: bytes, most: int = MOST_REFS) -> Refs:
    """The refs of an answer to `ls_refs`; raises BadAnswer."""
    lines: list[bytes] = []
    ended = False
    try:
        for one in packets(data):
            if ended or (isinstance(one, Mark) and one is not Mark.FLUSH):
                raise BadAnswer("the answer does not end with its list")
            if isinstance(one, Mark):
                ended = True
            else:
                lines.append(one)
            if len(lines) > most:
                raise TooManyRefs(f"the repository has more than {most} refs")
    except BadPacket as error:
        raise BadAnswer(str(error)) from None
    if not ended:
        raise BadAnswer("the answer has no end")
    return _refs(lines)


def parse_listing(data: bytes, most: int = MOST_REFS) -> Refs:
    """The refs in the output of `git ls-remote --symref`; raises BadAnswer."""
    lines = []
    for line in data.splitlines():
        first, _, name = line.partition(b"\t")
        if first.startswith(b"ref: "):
            if name == b"HEAD":
                lines.append(b"unborn HEAD " + _SYMREF + first.removeprefix(b"ref: "))
        elif not name.endswith(b"^{}"):
            lines.append(first + b" " + name)
        if len(lines) > most:
            raise TooManyRefs(f"the repository has more than {most} refs")
    return _refs(lines)


def _refs(lines: Iterable[bytes]) -> Refs:
    ids: dict[str, str] = {}
    head = ""
    for line in lines:
        if line.startswith(b"ERR "):
            raise BadAnswer(f"the server says: {_shown(line[4:])}")
        first, _, rest = line.partition(b" ")
        name, _, attributes = rest.partition(b" ")
        if name == b"HEAD":
            head = _head(attributes) or head
            continue
        if not _ID.fullmatch(first):
            raise BadAnswer(f"{_shown(first)} is not an object id")
        ids[_name(name)] = first.decode()
    return Refs(ids, head)


def _head(attributes: bytes) -> str:
    for one in attributes.split(b" "):
        if one.startswith(_SYMREF):
            return _name(one.removeprefix(_SYMREF))
    return ""


def _name(name: bytes) -> str:
    """Raises BadAnswer for a name that git itself would not create."""
    try:
        text = name.decode()
    except UnicodeDecodeError:
        raise BadAnswer(f"{_shown(name)} is not a valid name of a ref") from None
    odd = ".." in text or "//" in text or "@{" in text or text.endswith(("/", "."))
    parts = text.split("/")
    odd = odd or any(part.startswith(".") or part.endswith(".lock") for part in parts)
    if odd or not _NAME.fullmatch(text):
        raise BadAnswer(f"{_shown(name)} is not a valid name of a ref")
    return text


def _shown(data: bytes) -> str:
    return repr(data[:_SHOWN].decode(errors="replace"))
