"""Log in by password or by a one-time link, and log out. The API decides; the page forwards its
session cookie. It never shows whether a user exists."""

from __future__ import annotations

from skep.errors import InvalidInput, SkepError, TooManyTries, Unauthorized
from skep.portal.page import Outcome, Page, PageCall, Redirect, View
from skep.portal.safe_paths import safe_path
from skep.wire.api.people.login import LoginForm


async def show(call: PageCall) -> Outcome:
    return _page(call, safe_path(call.query.get("next", "")))


async def log_in(call: PageCall) -> Outcome:
    back = safe_path(call.field("next"))
    link = call.field("link").strip()
    # A whole link may be pasted: its secret follows `#`.
    link = link.rpartition("#")[2]
    form = LoginForm("link", link=link) if link else _typed(call)
    try:
        await call.api.login.log_in(form)
    except (Unauthorized, TooManyTries, InvalidInput) as error:
        return _page(call, back, error)
    cookie = call.answer_headers.get("set-cookie", "")
    return Redirect(back, {"set-cookie": cookie})


def _typed(call: PageCall) -> LoginForm:
    return LoginForm("password", call.field("user")[:64], call.field("password"))


def _page(call: PageCall, back: str, error: SkepError | None = None) -> View:
    data = {"next": back, "problem": error.detail if error else "", "user": call.field("user")}
    return View("pages/login.html", data, status=error.status if error else 200)


async def log_out(call: PageCall) -> Outcome:
    await call.api.login.log_out()
    return Redirect("/login", {"set-cookie": call.answer_headers.get("set-cookie", "")})


PAGES = (
    Page("login", "/login", show, public=True),
    Page("login", "/login", log_in, method="POST", public=True),
    Page("login", "/logout", log_out, method="POST"),
)
