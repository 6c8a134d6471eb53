"""`skep new spider`: creates a spider from a template; the result runs without changes.

It writes one file and never replaces an existing file.
"""

from __future__ import annotations

import keyword
import re
from importlib.resources import files
from pathlib import Path
from string import Template
from urllib.parse import urlsplit

import click

from skep.cli.terminal.output import show

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,40}")


@click.group("new")
def command() -> None:
    """Create a spider from a template."""


@command.command("spider")
@click.argument("name")
@click.option(
    "--url", default="https://example.com/", metavar="URL", help="Where the spider starts."
)
def spider(name: str, url: str) -> None:
    """Create NAME.py, a spider that runs without changes.

    An existing file is never changed.
    """
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise click.UsageError(
            f"{name!r} is not a valid spider name; use letters and digits, first a letter"
        )
    path = Path(f"{name.replace('-', '_').lower()}.py")
    text = spider_text(name, url, path.name)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise click.UsageError(f"{path} exists; choose another name") from None
    show(f"created {path}; next: `skep run {path} -o {name}.jsonl`")


def spider_text(name: str, url: str, file: str) -> str:
    """The template with all values filled in."""
    try:
        host = urlsplit(url).hostname if "://" in url else None
    except ValueError:
        host = None
    if not host or not url.isprintable() or set(url) & set(' "\\'):
        raise click.UsageError(f"--url: {url!r} is not a URL; write it as https://host/path")
    words = re.split(r"[_-]+", name)
    parts = {"name": name, "url": url, "host": host, "file": file}
    parts["class_name"] = "".join(word[:1].upper() + word[1:] for word in words)
    template = files("skep.spiders").joinpath("templates/spider.txt").read_text(encoding="utf-8")
    return Template(template).substitute(parts)
