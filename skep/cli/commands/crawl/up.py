"""`skep up`: a center and an agent in one process, with SQLite in a data folder.

The center and the agent are the same as in separate processes and communicate over HTTP.
"""

from __future__ import annotations

import click

from skep.cli.terminal.options import ProcessOptions, bind_options, process_options

#: A first command to try in another terminal.
FIRST = "submit first --new --wait -"


@click.command("up")
@process_options
@bind_options
@click.option("--no-agent", is_flag=True, help="Start only the center.")
def command(process: ProcessOptions, host: str | None, port: int | None, no_agent: bool) -> int:
    """Start a center and an agent on this machine.

    The first start creates the data folder with two tokens: admin.token for you, agent.token
    for agents. By default, downloads may go to public addresses, and to a loopback or private
    address if a start URL or a submitted URL names its host and port; the egress settings
    change this. Ctrl-C or SIGTERM stops it cleanly.
    """
    from skep.cli.terminal.output import show
    from skep.cli.terminal.program_name import command_line, remember_place
    from skep.embed.embedded import with_local_code, with_loopback
    from skep.embed.serve import start

    typed = {"--data": process.data, "--config": process.config}
    remember_place([word for name, at in typed.items() if at for word in (name, str(at))])
    flags = {"center.host": host, "center.port": port}
    settings = with_local_code(with_loopback(process.settings(flags)))
    first = f"echo https://example.org/ | {command_line(FIRST)}"
    return start(
        settings, with_agent=not no_agent, verbose=process.verbose, show=show, next_step=first
    )
