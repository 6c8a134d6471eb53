"""Wrong settings are explained in sentences, without types and paths of programs (U13)."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from skep.cli.commands.crawl.submit import _run_settings
from skep.cli.terminal.settings_options import read_settings
from skep.errors import ConfigurationError
from skep.settings import load
from skep.spiders.authoring.spider_settings import split_settings

_FOR_PROGRAMS = re.compile(r"Expected|\$\.|`(int|str|float|bool|array|object)`")

#: `--set` -> parts of the error.
CHOSEN = {
    "lanes.mid_limit=abc": ("lanes.mid_limit is 'abc'", "a whole number, at least 1"),
    "lanes.mid_limit=0": ("lanes.mid_limit is '0'", "at least 1"),
    "lanes.mid_limit=1.5": ("lanes.mid_limit is '1.5'", "a whole number"),
    "lanes.lease_seconds=long": ("lanes.lease_seconds is 'long'", "a number"),
    "center.port=abc": ("center.port is 'abc'", "a whole number", "at most 65535"),
    "center.port=99999": ("center.port is '99999'", "at most 65535"),
    "center.port=-1": ("center.port is '-1'", "at least 0"),
    "center.auth=perhaps": ("center.auth is 'perhaps'", "true or false"),
    "nosuch.setting=1": ("no setting 'nosuch.setting'", "settings.md"),
    "lanes.midlimit=1": ("no setting 'lanes.midlimit'", "did you mean 'lanes.mid_limit'?"),
    "center.prot=1": ("no setting 'center.prot'", "did you mean 'center.port'?"),
    "port=1": ("no setting 'port'", "settings.md"),
}
#: A setting of a run or a spider -> parts of the error.
OF_RUNS = {
    "retries": ("many", ("retries is 'many'", "a whole number, at least 0, at most 1000")),
    "priority": (9, ("priority is 9", "at least -1, at most 5")),
    "time_limit": (0, ("time_limit is 0", "a number, more than 0, at most 86400")),
    "robots": ("perhaps", ("robots is 'perhaps'", "true or false")),
}


def assert_explained(text: str, parts: tuple[str, ...]) -> None:
    assert not _FOR_PROGRAMS.search(text), text
    assert all(part in text for part in parts), text


@pytest.mark.parametrize("chosen", CHOSEN)
def test_a_setting_on_the_command_line(chosen: str) -> None:
    """U13: `--set NAME=VALUE`."""
    with pytest.raises((ConfigurationError, click.UsageError)) as caught:
        read_settings(None, None, [chosen])
    assert_explained(str(caught.value), CHOSEN[chosen])


def test_a_setting_in_the_environment() -> None:
    """U13: SKEP_CENTER_PORT=abc."""
    with pytest.raises(ConfigurationError) as caught:
        load(None, {"SKEP_CENTER_PORT": "abc"})
    assert_explained(str(caught.value), ("center.port is 'abc'", "a whole number"))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[lanes]\nmidlimit = 1\n", ("no setting 'lanes.midlimit'", "'lanes.mid_limit'?")),
        ("[centre]\nport = 1\n", ("no setting 'centre'", "did you mean 'center'?")),
        ("[center]\nport = [1]\n", ("center.port is [1]", "a whole number")),
    ],
)
def test_a_setting_in_a_file(tmp_path: Path, text: str, parts: tuple[str, ...]) -> None:
    """U13: in TOML."""
    file = tmp_path / "skep.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load(file)
    assert_explained(str(caught.value), parts)


@pytest.mark.parametrize("name", OF_RUNS)
def test_a_setting_of_a_run(name: str) -> None:
    """U13: `submit --set` and `run -s`."""
    value, parts = OF_RUNS[name]
    with pytest.raises(click.UsageError) as refused:
        _run_settings({}, (f"{name}={value}",))
    assert_explained(str(refused.value), parts)
    with pytest.raises(ConfigurationError) as caught:
        split_settings({name: value})
    assert_explained(str(caught.value), parts)


def test_values_that_may_be_secret_are_not_shown() -> None:
    """U13: the sentence shows no address, which may hold a password."""
    with pytest.raises(ConfigurationError) as caught:
        load(None, {"SKEP_CENTER_PUBLIC_URL": "https://me:hidden@example.org"})
    assert "hidden" not in str(caught.value)
    assert_explained(str(caught.value), ("center.public_url", "https://example.org/skep"))
