"""A list with its filter, its rows, its pages and its acts, ready for the macro `listing`. Pure.

A page says which columns there are and builds the rows; the filter language, the paging, the
selection and the bulk bar are the same for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from skep.model.filter.syntax import quoted_if_needed
from skep.model.view import View as SavedView
from skep.portal.show.cells import Cell
from skep.wire.api.listing import Listed
from skep.wire.api.operations import ActLine

#: Rows of one page.
PAGE_ROWS = 50


@dataclass(frozen=True, slots=True)
class Column:
    """`key` is the text of its heading (`jobs.column_name`)."""

    key: str
    is_number: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """`key` is the object in filters, acts and live updates."""

    key: str
    cells: Sequence[Cell]
    href: str = ""


@dataclass(frozen=True, slots=True)
class Filter:
    """The filter of a list, as the URL has it."""

    #: The list of the API: jobs, runs, requests, agents and so on; chooses the fields.
    resource: str
    text: str = ""
    #: The page key; "" = the first page.
    page: str = ""
    #: Why the API refused the filter; "" = it did not.
    problem: str = ""
    #: Filters that are offered as links: (text key, filter).
    offered: Sequence[tuple[str, str]] = ()

    @classmethod
    def of(
        cls, resource: str, query: Mapping[str, str], offered: Sequence[tuple[str, str]] = ()
    ) -> Filter:
        return cls(resource, query.get("filter", ""), query.get("page", ""), offered=offered)


@dataclass(frozen=True, slots=True)
class Listing:
    """A table. `field` is the field of the filter language that names one row."""

    path: str
    filter: Filter
    columns: Sequence[Column]
    rows: Sequence[Row]
    #: How the list goes on; None = it is whole.
    listed: Listed | None = None
    #: Acts of the bulk bar that the caller may use; empty = rows cannot be selected.
    acts: Sequence[ActLine] = ()
    field: str = "name"
    #: Name of the empty state in the catalogue (`jobs` -> `jobs.empty`).
    empty: str = ""
    #: The same list as a command, and as a path of the API.
    command: str = ""
    api_path: str = ""
    #: Filters that were saved under a name.
    views: Sequence[SavedView] = ()

    @property
    def next_url(self) -> str:
        """The next page; "" = this is the last one."""
        if self.listed is None or not self.listed.next_page:
            return ""
        return f"{self.path}?{_query(self.filter.text, self.listed.next_page)}"

    @property
    def first_url(self) -> str:
        """The first page; "" on it."""
        query = _query(self.filter.text, "")
        first = f"{self.path}?{query}" if query else self.path
        return first if self.filter.page else ""

    @property
    def count(self) -> int | None:
        return None if self.listed is None else self.listed.count

    @property
    def counted_exactly(self) -> bool:
        return self.listed is None or self.listed.exact


def filter_url(path: str, text: str) -> str:
    """A list with a filter."""
    return f"{path}?{_query(text, '')}" if text else path


def selected_filter(field: str, keys: Sequence[str]) -> str:
    """The filter that matches exactly these rows."""
    return f"{field}:{','.join(quoted_if_needed(key) for key in keys)}"


def _query(text: str, page: str) -> str:
    given = {"filter": text, "page": page}
    return urlencode({name: value for name, value in given.items() if value})
