"""Completion in a real bash: commands, options, and the fields and values of filters."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PATIENCE = 60.0
#: Prints what bash gets for a line, with the word breaks of an interactive bash.
SCRIPT = """
compopt() { :; }
COMP_WORDBREAKS=$' \\t\\n"\\'><=;|&(:'
source "$1"
shift
for line; do
    COMP_LINE="$line" COMP_POINT=${#line} COMPREPLY=()
    _skep_completion skep
    printf '%s|' "${COMPREPLY[@]}"
    echo
done
"""


def completed(folder: Path, *lines: str) -> list[list[str]]:
    """What bash offers for each line."""
    program = folder / "skep"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m skep "$@"\n')
    program.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SKEP_")}
    environment = {**kept, "PATH": f"{folder}:{kept['PATH']}", "SKEP_DATA": str(folder / "none")}
    script = folder / "skep.bash"
    with script.open("w") as file:
        subprocess.run([program, "completion", "bash"], env=environment, stdout=file, check=True)
    found = subprocess.run(
        ["bash", "-c", SCRIPT, "bash", str(script), *lines],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    return [[one for one in line.split("|") if one] for line in found.stdout.splitlines()]


def test_a_filter_is_completed_although_a_colon_ends_a_word(tmp_path: Path) -> None:
    """R3: bash replaces only what follows the last colon; the suggestion must be that part."""
    field, words, second, negated, option = completed(
        tmp_path,
        "skep runs ls st",
        "skep runs ls state:fa",
        "SKEP_DATA=x skep runs ls -state:failed,pa",
        "skep agents ls -sta",
        "skep audit --lim",
    )
    assert field == ["state:"]
    assert words == ["failed"]
    assert second == ["failed,paused"]
    assert negated == ["-state:"]
    assert option == ["--limit"]


@pytest.mark.parametrize("resource", ["runs", "logs"])
def test_a_view_completes_the_list_that_was_named(tmp_path: Path, resource: str) -> None:
    assert completed(tmp_path, f"skep view save mine {resource} jo") == [["job:"]]
