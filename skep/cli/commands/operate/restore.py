"""`skep restore`: restores a backup into an empty data folder and an empty database.

It writes nothing before every file of the backup has been compared with its digest.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from skep.cli.commands.operate.file_progress import end_progress, file_progress
from skep.cli.terminal.options import ProcessOptions, json_option, process_options
from skep.cli.terminal.output import show, show_json
from skep.runtime.clock import SystemClock


@click.command("restore")
@click.argument("source", type=click.Path(path_type=Path, exists=True))
@json_option
@process_options
def command(source: Path, as_json: bool, process: ProcessOptions) -> None:
    """Restore a backup into an empty data folder.

    SOURCE is a backup that `skep backup` created. For PostgreSQL or MariaDB, name an empty
    database with --set store.url=URL. Leased work waits again after the restore, and all
    users must log in again. Then start the center.
    """
    from skep.embed.backup.restore import restore

    settings, verbose = process.settings(), process.verbose
    try:
        found = asyncio.run(restore(settings, source, SystemClock(), file_progress(verbose)))
    finally:
        end_progress(verbose)
    if as_json:
        show_json({"data": settings.data, "bytes": found.size, "manifest": found})
        return
    show(f"restored center {found.center} into {settings.data}: {len(found.files)} files")
    show("users and tokens are as they were in the backup; revoke again what was revoked since")
    show(f"next     `skep up --data {settings.data}`")
