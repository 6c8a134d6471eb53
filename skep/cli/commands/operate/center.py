"""`skep center`: starts a center; agents on any machine can join it.

Reads the settings and calls `embed`, which rejects a public bind without authentication.
"""

from __future__ import annotations

import click

from skep.cli.terminal.options import ProcessOptions, bind_options, process_options


@click.command("center")
@process_options
@bind_options
@click.option("--store", metavar="URL", help="sqlite:///PATH, postgresql://... or mysql://...")
@click.option("--bus", metavar="URL", help="memory:// for one center, redis://... for several.")
@click.option(
    "--archive", metavar="URL", help="Folder, or s3://BUCKET/FOLDER, for downloaded pages."
)
def command(
    process: ProcessOptions,
    host: str | None,
    port: int | None,
    store: str | None,
    bus: str | None,
    archive: str | None,
) -> int:
    """Start a center without an agent.

    Several centers share one store and one bus; each has its own data folder. Binding to an
    address other than loopback requires authentication, which is on by default.
    """
    from skep.cli.terminal.output import show
    from skep.embed.serve import start

    flags = {
        "center.host": host,
        "center.port": port,
        "store.url": store,
        "bus.url": bus,
        "archive.url": archive,
    }
    return start(process.settings(flags), with_agent=False, verbose=process.verbose, show=show)
