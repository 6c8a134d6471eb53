"""`skep pipeline`: checks pipeline documents and runs their tests, without a center."""

from __future__ import annotations

from pathlib import Path

import click

from skep.cli.terminal.options import json_option

_files = click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True)
)


@click.group("pipeline")
def command() -> None:
    """Check pipeline documents and run their tests."""


@command.command("lint")
@_files
@json_option
def lint(files: tuple[Path, ...], as_json: bool) -> int:
    """Check pipeline documents.

    FILES are YAML (several documents separated by `---`, or a list) or JSON; `-` is stdin. All
    errors are reported together, with file, pipeline and path. Names of inputs, stores, servers
    and outputs are not checked.
    """
    from skep.cli.commands.jobs.pipeline_files import lint_files

    return lint_files(files, as_json=as_json)


@command.command("test")
@_files
@json_option
def test(files: tuple[Path, ...], as_json: bool) -> int:
    """Run the tests of pipeline documents.

    Each case is a message with its expected outcome. Stores, query servers and outputs are not
    contacted: the test contains their answers. The exit code is 1 if a case fails.
    """
    from skep.cli.commands.jobs.pipeline_files import test_files

    return test_files(files, as_json=as_json)
