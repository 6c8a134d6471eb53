"""`skep parse`: shows what a spider extracts from one page, without a center or a run.

The page is downloaded here and parsed in this process; items are shown, never stored.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from skep.cli.commands.crawl.spider_options import arguments_option, make_spider, spider_option
from skep.cli.terminal.exit_codes import ExitCode
from skep.cli.terminal.options import place_options
from skep.cli.terminal.output import say, show_json

if TYPE_CHECKING:
    from skep.settings import Settings
    from skep.spiders.authoring.spider import Spider
    from skep.spiders.driving.harvest import Harvest
    from skep.spiders.driving.stats import Stats
    from skep.spiders.ports import Page


@click.command("parse")
@click.argument("url")
@spider_option
@click.option("--callback", metavar="NAME", help="Method that parses the page. Default: parse.")
@arguments_option
@place_options
def command(
    url: str,
    spider_name: str,
    callback: str | None,
    arguments: tuple[str, ...],
    data: Path | None,
    config: Path | None,
) -> int:
    """Show what a spider extracts from one page.

    Downloads URL, calls the callback and prints items and requests as JSON. The exit code
    is 1 if the download failed or the callback raised an exception.
    """
    import asyncio

    from skep.cli.terminal.settings_options import read_settings
    from skep.errors import ConfigurationError
    from skep.runtime.logging import start_logging
    from skep.runtime.value_errors import choices

    start_logging(sys.stderr, logging.INFO, sentences=True)
    spider = make_spider(spider_name, arguments)
    if callback and not _is_callback(spider, callback):
        own = [name for name in vars(type(spider)) if _is_callback(spider, name)]
        told = f"{type(spider).__name__} has no method {callback!r}"
        raise ConfigurationError(f"{told}; {choices(callback, own or ['parse'])}")
    settings = read_settings(config, data)
    page, harvest, stats = asyncio.run(_parse(url, spider, callback or "", settings))
    show_json(_figures(page, callback or "parse", harvest))
    if page.failure:
        say(f"error: {page.detail} ({page.failure})")
    return ExitCode.FAILED if page.failure or stats.callback_errors else ExitCode.OK


def _is_callback(spider: Spider, name: str) -> bool:
    return not name.startswith("_") and callable(getattr(spider, name, None))


async def _parse(
    url: str, spider: Spider, callback: str, settings: Settings
) -> tuple[Page, Harvest | None, Stats]:
    from skep.cli.commands.crawl.page_fetcher import Fetcher
    from skep.spiders.authoring.callbacks import Caller
    from skep.spiders.authoring.request import Request
    from skep.spiders.driving.harvest import Harvester
    from skep.spiders.driving.page_parsing import Parser, Stop
    from skep.spiders.driving.stats import Stats

    request = Request(url, callback)
    request.follow = bool(spider.rules)
    async with Fetcher(settings, spider.run_settings) as fetcher:
        page = await fetcher.fetch(request)
    stats = Stats()
    with Caller(spider.options.callback_seconds) as caller:
        parser = Parser(spider, caller, Harvester(spider, stats), stats)
        try:
            return page, await parser.parse(page), stats
        except Stop as stop:
            say(f"error: {stop.sentence} ({stop.reason})")
            stats.callback_errors = max(stats.callback_errors, 1)
            return page, None, stats


def _figures(page: Page, callback: str, harvest: Harvest | None) -> dict[str, Any]:
    from skep.spiders.driving.request_meta import opened
    from skep.spiders.ports import Page

    requests = []
    for wanted in harvest.requests if harvest else ():
        request = opened(Page(0, wanted.uri, "", meta=wanted.meta))
        line = {"url": wanted.uri, "method": wanted.method, "callback": request.callback or "parse"}
        more = {"meta": request.meta, "kwargs": request.kwargs, "priority": wanted.priority}
        requests.append({**line, **{name: value for name, value in more.items() if value}})
    return {
        "url": page.final_uri or page.uri,
        "status": page.status,
        "callback": callback,
        "items": [item.data for item in harvest.items] if harvest else [],
        "requests": requests,
    }
