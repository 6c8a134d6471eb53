"""The filter of a list on the command line: its argument, its text and the end of a table.

A filter is checked before a center is asked, so that its errors need none. A word `@NAME` stands
for the filter of a saved view.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, TypeVar

import click

from skep.cli.terminal.options import Function, stacked
from skep.cli.terminal.output import show
from skep.errors import ConfigurationError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from skep.errors import InvalidFilter
    from skep.wire.api.listing import Listed
    from skep.wire.client.api import CenterApi

#: Stands before a term that begins with a minus while click reads the command line.
_NOT_AN_OPTION = "\0"
_IGNORED = (
    "the center is older than this command and ignores filters; upgrade the center, or list "
    "without a filter"
)
#: Characters of a filter that are shown around the place of an error.
_SHOWN = 70
L = TypeVar("L", bound="Listed")


class FilterCommand(click.Command):
    """A command with a filter: a term such as `-label:eu` is not an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        end = args.index("--") if "--" in args else len(args)
        marked = [_marked(word, options) for word in args[:end]]
        return super().parse_args(ctx, [*marked, *args[end:]])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The fields of the filter."""
        for parameter in self.get_params(ctx):
            if isinstance(parameter, FilterArgument) and parameter.resource:
                with formatter.section("Fields of FILTER"):
                    formatter.write_text(_fields(parameter.resource))
        super().format_epilog(ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Options, and after a single minus also terms."""
        found = super().shell_complete(ctx, incomplete)
        if re.match(r"-\w", incomplete):
            for parameter in self.get_params(ctx):
                if isinstance(parameter, FilterArgument):
                    found += parameter.shell_complete(ctx, incomplete)
        return found


class FilterArgument(click.Argument):
    """The words of a filter of one resource."""

    def __init__(self, names: Sequence[str], resource: str, **given: Any) -> None:
        self.resource = resource
        super().__init__(
            names,
            nargs=-1,
            metavar="[FILTER]...",
            callback=_without_marks,
            shell_complete=_complete,
            **given,
        )


def _marked(word: str, options: Sequence[click.Option]) -> str:
    """The word, marked if it is a term: it has one minus and is not one of the options."""
    if not re.match(r"-[^-\s]", word):
        return word
    known = [one for one in options if word[:2] in one.opts]
    is_option = any(word[2:] == "" or not (one.is_flag or ":" in word) for one in known)
    return word if is_option else f"{_NOT_AN_OPTION}{word}"


def _without_marks(
    _context: click.Context, _argument: click.Parameter, words: Sequence[str]
) -> tuple[str, ...]:
    return tuple(plain_word(word) for word in words)


def plain_word(word: str) -> str:
    """The word as it was typed."""
    return word.removeprefix(_NOT_AN_OPTION)


def _complete(
    context: click.Context, argument: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from skep.cli.terminal.filter_completion import known_values, suggestions

    typed = [value for name, value in context.params.items() if name == "resource"]
    resource = getattr(argument, "resource", "") or (typed[0] if typed and typed[0] else "")
    return suggestions(resource, incomplete, known_values(context, resource))


@dataclass(frozen=True, slots=True)
class ListQuery:
    """A filter and a page, as they were typed."""

    resource: str
    words: tuple[str, ...]
    #: None = not typed.
    limit: int | None
    page: str
    default_limit: int
    #: The list is shown in pages, also without a filter.
    paged: bool = False

    @property
    def given(self) -> bool:
        """Whether a page was asked for; otherwise the whole list is meant."""
        return bool(self.words or self.page or self.limit or self.paged)

    async def find(
        self,
        api: CenterApi,
        ask: Callable[[Any], Awaitable[L]],
        page: Callable[..., Any],
        **more: Any,
    ) -> L:
        """Call `ask` with a `page` of this filter and `more`; raises InvalidFilter, NotFound, and
        ConfigurationError for a center that is older than filters and would ignore them."""
        asked: dict[str, Any] = {"limit": self.limit or self.default_limit}
        if self.given:
            text = await text_of(api, self.words, self.resource)
            asked |= {"filter": text, "page": self.page}
        found = await ask(page(**more, **asked))
        if self.words and not self.page and found.count is None:
            raise ConfigurationError(_IGNORED)
        return found


def filter_argument(resource: str = "", name: str = "words") -> Callable[[Function], Function]:
    """The filter alone, as `name`; without a resource, the argument `resource` names it."""
    return click.argument(name, cls=FilterArgument, resource=resource)


def filter_options(resource: str, limit: int = 50, *short: str) -> Callable[[Function], Function]:
    """The filter, `--limit` and `--page`, passed together as `query`; for a FilterCommand."""

    def decorate(function: Function) -> Function:
        def gathered(*args: Any, **given: Any) -> Any:
            own = {name: given.pop(name) for name in ("words", "limit", "page")}
            source = click.get_current_context().get_parameter_source("limit")
            if source is not click.core.ParameterSource.COMMANDLINE:
                own["limit"] = None
            query = ListQuery(resource, default_limit=limit, **own)
            return function(*args, query=query, **given)

        # update_wrapper copies the options of the decorators below this one.
        update_wrapper(gathered, function)
        decorated: Function = options(gathered)
        return decorated

    size = f"Maximum number on a page. Default: {limit}."
    options: Callable[[Any], Any] = stacked(
        filter_argument(resource),
        click.option(
            "--limit", *short, "limit", type=click.IntRange(1, 1000), default=limit, help=size
        ),
        click.option("--page", default="", metavar="KEY", help="Continue after the last page."),
    )
    return decorate


async def text_of(api: CenterApi, words: Sequence[str], resource: str) -> str:
    """The filter as one text, with saved views in full; raises InvalidFilter and NotFound."""
    parts = [await _part(api, word, resource) for word in words]
    text = " ".join(part for part in parts if part)
    check_filter(text, resource)
    return text


def check_filter(text: str, resource: str) -> None:
    """Raises InvalidFilter, with a mark under the place."""
    from skep.errors import InvalidFilter
    from skep.runtime.clock import SystemClock
    from skep.wire.filter.check import read_filter
    from skep.wire.filter.tables import TABLES

    try:
        read_filter(text, TABLES[resource], SystemClock().now())
    except InvalidFilter as error:
        detail = f"the filter is not valid\n{_place_of(error, text)}\n{error.detail}"
        raise InvalidFilter(detail, error.column, error.length) from None


def _place_of(error: InvalidFilter, text: str) -> str:
    """The part of the filter that is wrong, with a line of marks under it."""
    place = max(error.column - 1, 0)
    start = max(0, place - _SHOWN // 2)
    shown = "".join(one if one.isprintable() else "?" for one in text[start : start + _SHOWN])
    marks = "^" * max(1, min(error.length, len(shown) - (place - start)))
    return f"  {shown}\n  {' ' * (place - start)}{marks}"


async def _part(api: CenterApi, word: str, resource: str) -> str:
    if not word.startswith("@"):
        return word
    from skep.errors import NotFound

    known = (await api.views.list()).items
    for view in known:
        if view.name == word[1:] and view.resource == resource:
            return view.filter
    raise NotFound(f"there is no view {word[1:]!r} of {resource}; `skep view ls` lists views")


def show_page(text: str, listed: Listed, shown: int) -> None:
    """Print a table, and how the list goes on."""
    show(text)
    if last := ending(listed, shown):
        show(last)


def no_match(query: ListQuery, listed: Listed, otherwise: str) -> str:
    """What is printed instead of an empty table; `otherwise` without a filter."""
    if listed.next_page:
        return f"no {query.resource} on this page; the search is not finished"
    if not query.words and not query.page:
        return otherwise
    return f"no {query.resource} match the filter; its fields are {_fields(query.resource)}"


def _fields(resource: str) -> str:
    from skep.wire.filter.tables import TABLES

    return ", ".join(TABLES[resource].names()) if resource in TABLES else ""


def ending(listed: Listed, shown: int) -> str:
    """The line under a table: how many there are, and how to go on; "" when that is all."""
    parts = []
    if listed.count is not None and (listed.next_page or listed.count > shown):
        plus = "" if listed.exact else "+"
        parts.append(f"{shown} of {listed.count:,}{plus}")
    if listed.scanned and listed.next_page:
        parts.append(f"{listed.scanned:,} rows searched")
    if listed.next_page:
        parts.append(f"next: --page {listed.next_page}")
    return "; ".join(parts)
