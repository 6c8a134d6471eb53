"""The page on testing your own fleet runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import msgspec

from skep.testing.figures import Row

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "test-your-fleet.md"


def blocks(language: str) -> list[str]:
    """All that a reader would copy; settings too, because a file without them does not run."""
    pattern = rf"^```{language}\n(.*?)^```$"
    return re.findall(pattern, PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_the_examples_of_the_page_pass_and_tell_their_figures(tmp_path: Path) -> None:
    """Faults 3, 22, 29, as a user would try them."""
    (tmp_path / "test_fleet.py").write_text("\n\n".join(blocks("python")))
    (tmp_path / "pytest.ini").write_text("\n".join(blocks("ini")))
    plugins = ["-p", "skep.testing.figures", "-p", "no:schemathesis", "-p", "no:cacheprovider"]
    table = tmp_path / "table.json"
    words = [sys.executable, "-m", "pytest", "-q", *plugins, f"--faults-json={table}"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row.row: row for row in msgspec.json.decode(table.read_bytes(), type=list[Row])}
    assert sorted(rows) == [3, 22, 29]
    assert "lost=0" in rows[22].proofs[0].figures[0]
