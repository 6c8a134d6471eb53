"""Every setting is documented, and the pages made from the code are in step with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from skep import settings
from skep.cli.main import COMMANDS
from tools.requirement_ids import FAMILIES, TITLES, docstrings_of, ids_in, ids_of_tests

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
    assert list(settings.SECTIONS) == structs


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_on_its_page(name: str) -> None:
    assert f"\n## skep {name}\n" in (ROOT / "docs" / "reference" / "cli.md").read_text()


def test_the_reference_pages_are_in_step() -> None:
    command = [sys.executable, str(ROOT / "tools" / "reference.py"), "check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_ids_are_found_in_docstrings_of_tests() -> None:
    assert ids_in("E11, C10: the second center. U11: named.") == {"E11", "C10", "U11"}
    assert ids_in("Faults 63 and 64, D7: contained (A8, C9).") == {"D7", "A8", "C9"}
    assert ids_in("The archive in S3, on a real server.") == set()
    assert ids_in("S3: a head that never ends.") == ids_in("Bounds (S3).") == {"S3"}
    source = '"""A1."""\n\ndef test_it():\n    """B2."""\n\ndef other():\n    """C3."""\n'
    assert list(docstrings_of(source)) == ["A1.", "B2."]


def test_every_id_that_a_test_names_has_a_title() -> None:
    """An id without a title is a new one, or a mistake."""
    assert ids_of_tests().keys() - TITLES.keys() == set()
    assert {name[0] for name in TITLES} == set(FAMILIES)
    assert all(title.endswith(".") and "|" not in title for title in TITLES.values())
