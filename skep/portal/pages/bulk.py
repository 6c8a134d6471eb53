"""A bulk act: what it would change, then the operation that does it. The API plans and works.

Nothing changes before the plan was shown and confirmed. An act on selected rows and an act on
everything that a filter matches are the same call with another filter.
"""

from __future__ import annotations

from skep.errors import InvalidInput
from skep.portal.page import Done, Outcome, Page, PageCall, View
from skep.portal.safe_paths import safe_path
from skep.portal.show.commands import command
from skep.portal.show.tables import selected_filter
from skep.runtime.ids import new_id
from skep.wire.api.operations import StartOperation

#: Rows that can be selected one by one.
SELECTED_LIMIT = 200


async def plan(call: PageCall) -> Outcome:
    """Make a dry run and ask."""
    text, everything = _wanted(call)
    resource, act = call.field("resource"), call.field("act")
    answer = await call.api.operations.start(StartOperation(resource, act, text, all=everything))
    if answer.plan is None:
        raise InvalidInput("the center made no plan")
    words = ("bulk", act, resource, text or "--all")
    data = {
        "plan": answer.plan,
        "resource": resource,
        "act": act,
        "filter": text,
        "everything": everything,
        "next": safe_path(call.field("next")),
        "key": new_id("act", call.now, call.rng),
        "command": command(*words),
    }
    return View("pages/bulk.html", data)


def _wanted(call: PageCall) -> tuple[str, bool]:
    """The filter, and whether it may match every object."""
    if call.field("scope") == "all":
        text = call.field("filter")
        return text, not text.strip()
    keys = call.form.get("key", [])
    if not keys:
        raise InvalidInput(call.texts.plain("bulk.nothing"))
    if len(keys) > SELECTED_LIMIT:
        raise InvalidInput(call.texts.plain("bulk.too_many", n=SELECTED_LIMIT))
    return selected_filter(call.field("field", "name"), keys), False


async def start(call: PageCall) -> Outcome:
    """Start the operation; a second click with the same key starts no second one."""
    answer = await call.api.operations.start(
        StartOperation(
            call.field("resource"),
            call.field("act"),
            call.field("filter"),
            dry_run=False,
            confirm=call.field("confirm"),
            all=call.field("everything") == "yes",
            key=call.field("key"),
        )
    )
    if answer.operation is None:
        raise InvalidInput("the center started no operation")
    number = answer.operation.id
    return Done(call.texts.plain("bulk.started", n=answer.operation.id), f"/operations/{number}")


PAGES = (
    Page("bulk", "/bulk", plan, method="POST"),
    Page("bulk", "/bulk/start", start, method="POST"),
)
