"""`skep up`: a center and an agent in one process, with SQLite in a data folder.

The same center and agent as apart, talking over the same HTTP; there is no second way inside.
"""

from __future__ import annotations

import click

from skep.cli.terminal.options import ProcessOptions, bind_options, process_options

#: What to try first, in another terminal.
FIRST = "submit first --new --wait -"


@click.command("up")
@process_options
@bind_options
@click.option("--no-agent", is_flag=True, help="Start the center alone.")
def command(process: ProcessOptions, host: str | None, port: int | None, no_agent: bool) -> int:
    """Start a center and an agent on this machine.

    The first start makes the data folder with two tokens: admin.token for you, agent.token
    for agents. Downloads may go to public addresses, and to loopback or private ones where a
    start URL or a submitted URL names that host and port, unless the egress settings say
    otherwise. Ctrl-C or SIGTERM ends it in order.
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
