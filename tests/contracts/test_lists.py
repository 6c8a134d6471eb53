"""Every list of the API takes the filter language and pages by key, or is named here with why not.

Read from the endpoint table, so that a new list cannot be forgotten.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import inspect

from skep.center.app import api_table
from skep.wire.api.listing import Listed
from skep.wire.filter.tables import TABLES

_OF_ONE = "belongs to one object, and is short or pages by its own key"
_FIXED = "a fixed or configured set of a few rows"
_FIGURES = "figures of a moment, not rows"
#: Operation id -> why it has no filter.
WITHOUT = {
    **dict.fromkeys(("get_readiness", "get_health", "get_disk", "get_storage"), _FIGURES),
    **dict.fromkeys(("get_lanes", "get_repairs", "get_log_budgets", "get_series"), _FIGURES),
    **dict.fromkeys(("list_acts", "list_series", "list_alert_rules", "list_user_groups"), _FIXED),
    **dict.fromkeys(("list_views", "list_secrets"), _FIXED),
    **dict.fromkeys(("get_run", "get_job", "get_request", "get_block", "get_agent"), _OF_ONE),
    **dict.fromkeys(("get_operation", "get_failure_group", "get_me"), _OF_ONE),
    **dict.fromkeys(("list_run_deliveries", "list_run_generators", "list_instances"), _OF_ONE),
    **dict.fromkeys(("list_job_revisions", "list_agent_heartbeats"), _OF_ONE),
    **dict.fromkeys(("list_agent_allocations", "get_run_placement"), _OF_ONE),
    **dict.fromkeys(("list_rejected_items", "get_request_head"), _OF_ONE),
    "list_failures": "counts dead requests of a run or job; `list_failure_groups` takes a filter",
    "list_items": "a stream of results in the order of their numbers, which must not miss one",
    "list_pages": "a stream of results in the order of their numbers, which must not miss one",
    "list_finished_requests": "the queue protocol of drivers",
    "preview_placement": "a calculation, nothing stored",
    "get_retention_plan": "a calculation, nothing stored",
    **{
        f"explain_{what}": "a chain of reasons about one object"
        for what in ("request", "block", "run", "job", "site")
    },
    "list_log_lines": "takes the filter; its `cursor` goes through pieces, not rows",
    "read_new_log_lines": "takes the filter; follows the log from a position",
    "get_log_context": "the lines around one line",
}


def lists() -> dict[str, Any]:
    """Operation id -> route, of all GETs whose answer has a list in it."""
    found = {}
    for row in api_table():
        route = row.route
        if route.method != "GET" or route.gives is None:
            continue
        answer = inspect.type_info(route.gives)
        fields = answer.fields if isinstance(answer, inspect.StructType) else ()
        if any(isinstance(field.type, inspect.ListType) for field in fields):
            found[route.id] = route
    return found


LISTS = lists()


def asked(route: Any) -> set[str]:
    return set(getattr(route.asks, "__struct_fields__", ()))


@pytest.mark.parametrize("name", sorted(LISTS.keys() - WITHOUT.keys()))
def test_a_list_takes_a_filter_and_a_page(name: str) -> None:
    """Issue 12, points 1 and 2."""
    route = LISTS[name]
    assert {"filter", "page", "limit"} <= asked(route)
    assert issubclass(route.gives, Listed), "it says how it goes on and how long it is"


def test_the_exceptions_exist_and_need_to_be_there() -> None:
    assert WITHOUT.keys() <= LISTS.keys()
    assert not [name for name in WITHOUT if {"filter", "page"} <= asked(LISTS[name])]


def test_every_resource_has_a_list() -> None:
    """A field table without a list would promise a filter that nothing takes."""
    assert len(LISTS.keys() - WITHOUT.keys()) >= len(TABLES) - 1, "all but logs have such a list"
