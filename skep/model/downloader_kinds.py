"""Kinds of downloader and their traits: what the rest of Skep decides by. Pure data.

`downloader_kind(name).takes_code` answers what would otherwise be a comparison of names, so that
a new kind is one new file. Centers validate by these traits and need no downloader for it; the
downloaders themselves are in `skep/downloaders`.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from skep.model.user_code import Language
from skep.runtime.plug_ins import loaded, points

#: Entry points of packages that add kinds.
GROUP = "skep.downloaders"


class DownloaderKind(msgspec.Struct, frozen=True):
    """What a kind can do and needs. Its name is what jobs, runs and agents say."""

    name: str
    #: URI schemes that it claims.
    schemes: tuple[str, ...] = ()
    #: It takes URIs of every scheme: what they mean is up to the code of the run.
    any_scheme: bool = False
    #: The run brings code for it; agents offer it only where user code is allowed.
    takes_code: bool = False
    #: The language of that code, when a center can check it.
    language: Language | None = None
    #: It takes `curl` options of the run.
    takes_options: bool = False
    #: It applies the content rules of the run.
    cuts_content: bool = False
    #: It leaves by the proxies and sessions of the run.
    uses_proxies: bool = False
    #: It connects to the host of a request itself, so the host's politeness applies.
    connects: bool = False
    #: Every agent has it: its blocks need no target of their own. No plug-in has this.
    everywhere: bool = False
    #: What it does, for the documentation of jobs.
    text: str = ""


_WEB = ("http", "https")

HTTP = DownloaderKind(
    "http",
    _WEB,
    cuts_content=True,
    uses_proxies=True,
    connects=True,
    everywhere=True,
    text="downloads URLs.",
)
CURL = DownloaderKind(
    "curl",
    _WEB,
    takes_options=True,
    cuts_content=True,
    uses_proxies=True,
    connects=True,
    text="as `http`, with options of curl.",
)
PYTHON = DownloaderKind(
    "python",
    any_scheme=True,
    takes_code=True,
    language=Language.PYTHON,
    text="runs Python code of the job.",
)
SHELL = DownloaderKind(
    "shell",
    any_scheme=True,
    takes_code=True,
    language=Language.SHELL,
    text="runs shell code of the job.",
)

#: Kinds that come with Skep. Others are found by their entry points.
BUILT_IN = (HTTP, CURL, PYTHON, SHELL)
_BUILT_IN = {kind.name: kind for kind in BUILT_IN}
#: Schemes of the kinds that come with Skep; no plug-in can claim them.
BUILT_IN_SCHEMES = tuple(dict.fromkeys(scheme for kind in BUILT_IN for scheme in kind.schemes))
#: The description of a field that names a kind.
KIND_TEXT = (
    " ".join(f"`{kind.name}`: {kind.text}" for kind in BUILT_IN)
    + " Or a kind that an installed package adds."
)


def downloader_kind(name: str) -> DownloaderKind:
    """The traits of a kind; one that is not installed here has none."""
    return _BUILT_IN.get(name) or _added(name)


def kind_names() -> tuple[str, ...]:
    """Every kind that can be named here, also of a package that cannot be loaded."""
    added = (point.name for point in points(GROUP) if point.name not in _BUILT_IN)
    return (*_BUILT_IN, *added)


def names_with(trait: str) -> str:
    """The kinds that have a trait, for messages: `curl, http and messages`."""
    names = sorted(name for name in kind_names() if getattr(downloader_kind(name), trait))
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def traits_of(found: Any, name: str) -> DownloaderKind:
    """The traits of a plug-in class: its `traits`, or a name and schemes alone."""
    said = getattr(found, "traits", None)
    if not isinstance(said, DownloaderKind):
        said = DownloaderKind(name, tuple(getattr(found, "schemes", ())))
    return replace(said, name=name, everywhere=False)


def _added(name: str) -> DownloaderKind:
    return traits_of(loaded(GROUP).get(name), name)
