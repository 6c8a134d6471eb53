"""`skep generator`: what people see of generators, without a center and with one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from skep.cli.main import skep

DOCUMENT = """
name: j
generators:
  - kind: python
    name: good
    code: |
      def generate():
          yield {"uri": "http://a/1", "priority": 1}
          yield "nonsense"
  - kind: shell
    name: bad
    code: "echo http://a/; echo oh no >&2; exit 3"
"""


def skep_json(*arguments: str) -> tuple[int, Any]:
    done = CliRunner().invoke(skep, [*arguments, "--json"], standalone_mode=False)
    assert done.exception is None, done.output
    return done.return_value, json.loads(done.stdout)


def test_generators_are_tried_out_without_a_center(tmp_path: Path) -> None:
    """Issue 4: `skep generator test`: the first URIs, the time, the errors."""
    file = tmp_path / "job.yaml"
    file.write_text(DOCUMENT)
    code, answer = skep_json("generator", "test", str(file))
    good, bad = answer["items"]
    assert code == 1
    assert (good["requests"], good["yielded"], good["whole"], good["error"]) == (
        [{"uri": "http://a/1", "priority": 1}],
        2,
        True,
        "",
    )
    assert "'nonsense' is not a URL" in good["bad"][0]
    assert "exit code 3" in bad["error"]
    assert "oh no" in bad["error"]
    code, answer = skep_json("generator", "test", str(file), "good")
    assert (code, [one["name"] for one in answer["items"]]) == (0, ["good"])
