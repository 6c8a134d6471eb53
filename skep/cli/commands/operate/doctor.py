"""`skep doctor`: checks this machine and the center, and explains how to fix problems.

It only reads. It skips what it cannot read, such as the folder of a remote center.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from skep.cli.terminal.center_options import calls_center
from skep.cli.terminal.exit_codes import ExitCode
from skep.cli.terminal.line_wrapping import wide_option
from skep.cli.terminal.options import json_option
from skep.cli.terminal.output import colored, show, show_json
from skep.embed.center_address import CenterAddress

if TYPE_CHECKING:
    from skep.embed.checks.finding import Finding


@click.command("doctor")
@wide_option
@json_option
@calls_center
def command(reach: CenterAddress, as_json: bool) -> int:
    """Check this machine and the center, and explain how to fix problems.

    The exit code is 1 if a check fails; warnings do not change it.
    """
    from skep.embed.checks.examination import examine

    findings = asyncio.run(examine(reach))
    well = all(finding.ok or finding.warning for finding in findings)
    if as_json:
        show_json({"ok": well, "checks": findings})
    else:
        show("\n".join(line_of(finding) for finding in findings))
    return ExitCode.OK if well else ExitCode.FAILED


def line_of(finding: Finding, *, warns: bool = False) -> str:
    """A finding as text. A failed check that only `warns` does not block anything."""
    bad = colored("warn ", "yellow") if warns or finding.warning else colored("wrong", "red")
    mark = "ok   " if finding.ok else bad
    fix = f"\n       fix: {finding.fix}" if not finding.ok else ""
    return f"{mark}  {finding.name}: {finding.detail}{fix}"
