"""Every setting is documented, and the pages made from the code are in step with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from skep import settings
from skep.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
DOCUMENTED = list(settings.documented())


@pytest.mark.parametrize(
    ("room", "field", "description"),
    [(room, field, text) for room, field, _, text in DOCUMENTED],
    ids=[f"{room}.{field}" for room, field, *_ in DOCUMENTED],
)
def test_every_setting_says_what_it_means(room: str, field: str, description: str) -> None:
    assert description.endswith(".")
    assert len(description.split()) >= 2
    assert "|" not in description, "it would break the table of the reference page"


def test_every_room_of_settings_is_listed() -> None:
    structs = [
        field.name
        for field in msgspec.structs.fields(settings.Settings)
        if isinstance(getattr(settings.Settings(), field.name), msgspec.Struct)
    ]
    assert list(settings.ROOMS) == structs


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_on_its_page(name: str) -> None:
    assert f"\n## skep {name}\n" in (ROOT / "docs" / "reference" / "cli.md").read_text()


def test_the_reference_pages_are_in_step() -> None:
    command = [sys.executable, str(ROOT / "tools" / "reference.py"), "check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
