"""Traits of downloader kinds: ours, those of packages, and what an agent makes of them."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from skep.downloaders.code.isolation import Isolation
from skep.downloaders.refused_kind import offered
from skep.downloaders.registry import kinds
from skep.errors import InvalidInput
from skep.jobs.request_validation import Validator
from skep.model.downloader_kinds import BUILT_IN, DownloaderKind, downloader_kind, kind_names
from skep.model.fleet.placement import kind_target
from skep.model.run import RunSettings
from skep.model.user_code import Code
from skep.runtime.clock import SystemClock
from skep.settings import AgentSettings, EgressSettings

PACKAGE = """
from skep.model.downloader_kinds import DownloaderKind


class Kind:
    schemes = ()

    def __init__(self, plug_in):
        pass

    def open(self, run, settings):
        raise NotImplementedError


class Scripts(Kind):
    name = "scripts"
    traits = DownloaderKind("scripts", takes_code=True, uses_proxies=True, everywhere=True)


class Plain(Kind):
    name = "plain"
    schemes = ("plain",)


class Greedy(Kind):
    name = "greedy"
    schemes = ("https",)
"""
ENTRIES = "".join(f"{name} = two_kinds:{name.title()}\n" for name in ("scripts", "plain", "greedy"))


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "two_kinds.py").write_text(PACKAGE)
    info = tmp_path / "two_kinds-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: two-kinds\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[skep.downloaders]\n{ENTRIES}")
    monkeypatch.syspath_prepend(str(tmp_path))


def offer(code: str) -> tuple[str, ...]:
    agent = AgentSettings(code=code)  # type: ignore[arg-type]  # one of its words
    boxed = Isolation("bwrap", "", own_user=False)
    known = kinds(SystemClock(), Random(1), EgressSettings(), agent=agent, isolation=boxed)
    return offered(known.values())


def test_the_kinds_that_come_with_skep_are_those_of_their_files() -> None:
    agent = AgentSettings(code="boxed")
    isolation = Isolation("bwrap", "", own_user=False)
    known = kinds(SystemClock(), Random(1), EgressSettings(), agent=agent, isolation=isolation)
    assert [(kind.name, kind.schemes) for kind in known.values()] == [
        (kind.name, kind.schemes) for kind in BUILT_IN
    ]


def test_a_class_without_traits_is_a_name_and_schemes(package: None) -> None:
    assert downloader_kind("plain") == DownloaderKind("plain", ("plain",))
    assert downloader_kind("absent") == DownloaderKind("absent")
    assert kind_names() == ("http", "curl", "python", "shell", "greedy", "plain", "scripts")


def test_no_package_is_everywhere(package: None) -> None:
    """Its blocks would go to agents that do not have it."""
    assert not downloader_kind("scripts").everywhere
    assert (kind_target("http"), kind_target("scripts")) == ("", "kind:scripts")


def test_a_kind_that_takes_code_is_offered_where_code_is(package: None) -> None:
    """D6: also one of a package. What claims our schemes is refused."""
    assert offer("always") == ("http", "curl", "python", "shell", "plain", "scripts")
    assert offer("never") == ("http", "curl", "plain")


def test_a_center_checks_by_traits(package: None) -> None:
    validator = Validator(("http",), Random(1))
    code = Code("say hello")
    validator.check_settings(RunSettings(downloader="scripts", code=code))
    with pytest.raises(InvalidInput, match="'scripts' needs `code`"):
        validator.check_settings(RunSettings(downloader="scripts"))
    with pytest.raises(
        InvalidInput, match="'plain' takes no `code`; use one of python, scripts and shell"
    ):
        validator.check_settings(RunSettings(downloader="plain", code=code))
    with pytest.raises(InvalidInput, match="need one of the downloaders curl, http and scripts"):
        validator.check_settings(RunSettings(downloader="plain", sessions=2))
