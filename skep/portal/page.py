"""The contract of a page: what it declares, what its function gets, and what it may return.

Used by every file in `pages`. A page is plain data and one function; serving, errors, headers and
identity are in `serving.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from starlette.requests import Request

from skep.portal.preferences import Preferences
from skep.portal.show.ranges import TimeRange
from skep.portal.texts import Texts
from skep.runtime.clock import Clock
from skep.wire.api.people.login import Me
from skep.wire.client.api import CenterApi


@dataclass(frozen=True, slots=True)
class View:
    """A template with its values, shown in the frame."""

    template: str
    data: Mapping[str, Any]
    #: The title in the browser; "" = that of the page.
    title: str = ""
    #: Watches of the event stream after which the page is read again (`runs:state:running`).
    watch: tuple[str, ...] = ()
    #: Seconds after which it is read again in any case; 0 = never.
    every: int = 0
    status: int = 200


@dataclass(frozen=True, slots=True)
class Redirect:
    """Go to a path of the portal, without the prefix of the proxy."""

    path: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Done:
    """An act was done: a sentence, and the path of the page to show next."""

    text: str
    path: str


@dataclass(frozen=True, slots=True)
class Data:
    """JSON for a module of the page."""

    value: Any
    status: int = 200


@dataclass(frozen=True, slots=True)
class Foreign:
    """A collected document for a frame: sent so that it runs and loads nothing, on an origin of its
    own."""

    content: bytes
    content_type: str


Outcome = View | Redirect | Done | Data | Foreign


@dataclass(slots=True)
class PageCall:
    """What the function of a page gets."""

    request: Request
    #: The API, called as the user who asks.
    api: CenterApi
    texts: Texts
    preferences: Preferences
    #: The caller; None on pages that need no login.
    me: Me | None
    clock: Clock
    rng: Random
    #: Fields of the submitted form; empty for GET.
    form: Mapping[str, list[str]]
    #: Headers of the last answer of the API.
    answer_headers: dict[str, str]

    @property
    def path(self) -> Mapping[str, str]:
        return self.request.path_params

    @property
    def query(self) -> Mapping[str, str]:
        return self.request.query_params

    @property
    def now(self) -> float:
        return self.clock.now()

    def field(self, name: str, default: str = "") -> str:
        """The value of one field of the form."""
        values = self.form.get(name)
        return values[0] if values else default

    @property
    def range(self) -> TimeRange:
        """The period of all charts, from the URL."""
        return TimeRange.of(self.query, self.now)

    def may(self, role: str) -> bool:
        """Whether the caller has at least this role."""
        order = ("viewer", "operator", "admin")
        return self.me is not None and self.me.role in order[order.index(role) :]


@dataclass(frozen=True, slots=True)
class NavPlace:
    """Where the side bar has the page: a group, and a number for the order in it."""

    group: str
    order: int
    #: Letter of the key `g` + letter.
    key: str = ""


@dataclass(frozen=True, slots=True)
class NavCount:
    """A number in the side bar; `look` is "" (grey), `warn` or `bad`. None is not shown."""

    number: int | None
    look: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """One path of the portal."""

    name: str
    path: str
    show: Callable[[PageCall], Awaitable[Outcome]]
    method: str = "GET"
    #: Place in the side bar; None = reached by links.
    nav: NavPlace | None = None
    #: The page of the side bar that is marked while this one is open; "" = itself.
    under: str = ""
    #: The number beside its line in the side bar; read after the page, so it delays nothing.
    count: Callable[[PageCall], Awaitable[NavCount]] | None = None
    #: Whether it can be opened without login.
    public: bool = False
