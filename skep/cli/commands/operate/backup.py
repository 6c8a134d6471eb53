"""`skep backup`: makes a consistent copy of a center while it runs.

Works on the data folder and the store in this machine's settings; it calls no center.
"""

from __future__ import annotations

from pathlib import Path

import click

from skep.cli.commands.operate.file_progress import end_progress, file_progress
from skep.cli.terminal.options import ProcessOptions, json_option, process_options
from skep.cli.terminal.output import show, show_json
from skep.runtime.clock import SystemClock


@click.command("backup")
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--without-archive", is_flag=True, help="Leave out the bodies of pages.")
@click.option("--without-secrets", is_flag=True, help="Leave out tokens and DATA/secrets.")
@json_option
@process_options
def command(
    target: Path,
    without_archive: bool,
    without_secrets: bool,
    as_json: bool,
    process: ProcessOptions,
) -> None:
    """Back up a center, even while it runs.

    TARGET is a new folder, or a new file that ends in .tar. It contains the store, the
    archive, the name of the center, its tokens and DATA/secrets, each file with its SHA-256.
    -v prints each file.
    """
    from skep.embed.backup.make import back_up

    try:
        made = back_up(
            process.settings(),
            target,
            SystemClock(),
            file_progress(process.verbose),
            archive=not without_archive,
            secrets=not without_secrets,
        )
    finally:
        end_progress(process.verbose)
    if as_json:
        show_json({"target": str(target), "bytes": made.size, "manifest": made})
        return
    show(f"{target}: {len(made.files)} files, {made.size} bytes, center {made.center}")
    if made.archive != "included":
        show(f"the archive is {made.archive} {made.archive_url}".rstrip())
