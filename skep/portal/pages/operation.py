"""One bulk operation: its progress, its results, and how to end it."""

from __future__ import annotations

from skep.errors import NotFound
from skep.portal.page import Done, Outcome, Page, PageCall, View
from skep.portal.show.acts import Act
from skep.portal.show.commands import command

_OPEN = frozenset({"waiting", "collecting", "working"})


async def show(call: PageCall) -> Outcome:
    number = _number(call)
    view = await call.api.operations.show(number)
    is_open = str(view.state) in _OPEN
    cancel = Act(
        "operation.act_cancel",
        f"/operations/{number}/cancel",
        confirm="operation.confirm_cancel",
        command=command("op", "cancel", str(number)),
        api_path=f"/api/v1/operations/{number}/cancel",
    )
    data = {
        "operation": view,
        "is_open": is_open,
        "acts": [cancel] if is_open and call.may("operator") else [],
    }
    title = call.texts.plain("operation.name", number=str(number))
    return View("pages/operation.html", data, title=title, watch=(f"operation:{number}",))


async def cancel(call: PageCall) -> Outcome:
    number = _number(call)
    await call.api.operations.cancel(number)
    return Done(call.texts.plain("operation.said_cancel"), f"/operations/{number}")


def _number(call: PageCall) -> int:
    text = call.path["operation"]
    if not text.isascii() or not text.isdecimal() or len(text) > 18:  # noqa: PLR2004
        raise NotFound(f"there is no operation {text[:50]!r}")
    return int(text)


PAGES = (
    Page("operation", "/operations/{operation}", show, under="operations"),
    Page(
        "operation",
        "/operations/{operation}/cancel",
        cancel,
        method="POST",
        under="operations",
    ),
)
