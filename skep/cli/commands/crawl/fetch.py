"""`skep fetch`: downloads one page on this machine, as an agent would.

It does not use a center and stores nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from skep.cli.terminal.exit_codes import ExitCode
from skep.cli.terminal.options import json_option, place_options
from skep.cli.terminal.output import say, show_json

if TYPE_CHECKING:
    from skep.settings import Settings
    from skep.spiders.authoring.response import Response
    from skep.spiders.ports import Page


@click.command("fetch")
@click.argument("url")
@click.option("--headers", is_flag=True, help="Also print the response headers, on stderr.")
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    metavar="URL",
    help="URL of a proxy (http, socks5 or socks5h); repeatable, for a pool.",
)
@json_option
@place_options
def command(
    url: str,
    headers: bool,
    proxies: tuple[str, ...],
    as_json: bool,
    data: Path | None,
    config: Path | None,
) -> int:
    """Download one page as an agent would.

    The body goes to stdout, everything else to stderr. The exit code is 0 for a page, and 1
    if the download failed or the status is an error. No center is needed.
    """
    import asyncio

    from skep.cli.terminal.settings_options import read_settings
    from skep.spiders.driving.page_decoding import Unpacker

    page = asyncio.run(_fetch(url, read_settings(config, data), proxies))
    response = Unpacker().response(page)
    if as_json:
        show_json(_figures(page, response))
    else:
        _show(page, response, headers=headers)
    if page.failure:
        say(f"error: {page.detail} ({page.failure})")
    return ExitCode.FAILED if page.failure else ExitCode.OK


async def _fetch(url: str, settings: Settings, proxies: tuple[str, ...]) -> Page:
    from skep.cli.commands.crawl.page_fetcher import Fetcher
    from skep.downloaders.proxies import parse_proxy
    from skep.model.proxies import ExitRules
    from skep.model.run import RunSettings
    from skep.spiders.authoring.request import Request

    for place, proxy in enumerate(proxies, 1):
        parse_proxy(proxy, f"--proxy {place}")
    exits = ExitRules(proxies=proxies) if proxies else None
    async with Fetcher(settings, RunSettings(exits=exits)) as fetcher:
        return await fetcher.fetch(Request(url))


def _show(page: Page, response: Response, *, headers: bool) -> None:
    if page.status:
        body = response.body
        seconds = page.elapsed_us / 1e6
        say(f"{response.status} {response.url} · {len(body)} bytes · {seconds:.3f} s")
        if headers:
            for name, value in response.headers.items():
                say(f"{name}: {value}")
        sys.stdout.buffer.write(body)
        sys.stdout.flush()


def _figures(page: Page, response: Response) -> dict[str, Any]:
    return {
        "url": response.url,
        "status": page.status,
        "failure": page.failure,
        "detail": page.detail,
        "headers": list(response.headers.items()),
        "charset": response.charset,
        "address": response.address,
        "seconds": page.elapsed_us / 1e6,
        "size": len(response.body),
        "text": response.text,
    }
