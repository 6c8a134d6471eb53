"""`skep shell`: opens a page in a Python shell, to find the right selectors.

The typed code runs in this process, with the rights of the current user.
"""

from __future__ import annotations

import asyncio
import code
import sys
import tempfile
import traceback
import webbrowser
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from skep.cli.commands.crawl.spider_options import arguments_option, make_spider
from skep.cli.terminal.exit_codes import ExitCode
from skep.cli.terminal.options import place_options
from skep.cli.terminal.output import say

if TYPE_CHECKING:
    from skep.cli.commands.crawl.page_fetcher import Fetcher
    from skep.spiders.authoring.response import Response
    from skep.spiders.authoring.spider import Spider

BANNER = """\
response      the page: response.css("h1::text").get(), response.links(), response.text
fetch(url)    another page, which is then `response`
view()        show the page in a browser
spider        the spider, for its callbacks: list(spider.parse(response))"""

#: The file name that Python gives to the code of -c.
CODE = "<-c>"


@click.command("shell")
@click.argument("url", required=False)
@click.option("-c", "source", metavar="CODE", help="Run this code and exit.")
@click.option(
    "--spider",
    "spider_name",
    metavar="SPIDER",
    help="The spider: file.py, file.py:Class or package.module:Class.",
)
@arguments_option
@place_options
def command(
    url: str | None,
    source: str | None,
    spider_name: str | None,
    arguments: tuple[str, ...],
    data: Path | None,
    config: Path | None,
) -> int:
    """Test selectors on a page in a Python shell.

    The names are `response`, `fetch(url)`, `view(response)` and `spider`. With -c, the command
    runs the code and exits: with 1 if the code raised an exception, otherwise with 0.
    """
    from skep.cli.commands.crawl.page_fetcher import Fetcher
    from skep.cli.terminal.settings_options import read_settings
    from skep.spiders.authoring.spider import Spider

    spider = make_spider(spider_name, arguments) if spider_name else Spider()
    loop = asyncio.new_event_loop()
    try:
        fetcher = Fetcher(read_settings(config, data), spider.run_settings)
        loop.run_until_complete(fetcher.__aenter__())
        try:
            desk = ShellSession(loop, fetcher, spider)
            if url:
                desk.fetch(url)
            return desk.run(source) if source is not None else desk.ask()
        finally:
            loop.run_until_complete(fetcher.__aexit__())
    finally:
        loop.close()


class ShellSession:
    """The names that are available at the prompt."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fetcher: Fetcher, spider: Spider) -> None:
        self._loop = loop
        self._fetcher = fetcher
        self.names: dict[str, Any] = {
            "fetch": self.fetch,
            "view": self.view,
            "spider": spider,
            "response": None,
        }

    def fetch(self, url: str) -> Response:
        """Download a page; it becomes `response`."""
        from skep.spiders.authoring.request import Request
        from skep.spiders.driving.page_decoding import Unpacker

        page = self._loop.run_until_complete(self._fetcher.fetch(Request(url)))
        if page.failure:
            say(f"{page.failure}: {page.detail}")
        response = Unpacker().response(page)
        self.names["response"] = response
        return response

    def view(self, response: Response | None = None) -> str:
        """Show a page in a browser; returns the temporary file."""
        shown: Response = response or self.names["response"]
        with tempfile.NamedTemporaryFile(
            "w", suffix=".html", prefix="skep-", delete=False, encoding="utf-8"
        ) as file:
            file.write(f'<base href="{escape(shown.url)}">\n<meta charset="utf-8">\n{shown.text}')
        webbrowser.open(Path(file.name).as_uri())
        return file.name

    def run(self, source: str) -> int:
        """Run one line as at the prompt, or several lines as in a file."""
        interpreter = _Interpreter(self.names)
        try:
            compiled = compile(source, CODE, "single")
        except SyntaxError:
            try:
                compiled = compile(source, CODE, "exec")
            except SyntaxError:
                interpreter.showsyntaxerror(CODE)
                return ExitCode.FAILED
        interpreter.runcode(compiled)
        return ExitCode.FAILED if interpreter.raised else ExitCode.OK

    def ask(self) -> int:
        """Show a prompt until Ctrl-D."""
        with suppress(ImportError):
            import readline  # noqa: F401 - makes the arrow keys work
        console = code.InteractiveConsole(self.names)
        console.interact(f"{BANNER}\nresponse = {self.names['response']!r}", exitmsg="")
        return ExitCode.OK


class _Interpreter(code.InteractiveInterpreter):
    """Prints an exception of the code in one line, and remembers that there was one."""

    raised = False

    def showtraceback(self) -> None:
        self.raised = True
        error = sys.exc_info()[1]
        if error is None:
            return
        frames = traceback.extract_tb(error.__traceback__)
        line = next((frame.lineno for frame in reversed(frames) if frame.filename == CODE), None)
        place = f" (line {line} of the code)" if line else ""
        said = "".join(traceback.format_exception_only(error)).strip()
        say(f"error: {said}{place}")
