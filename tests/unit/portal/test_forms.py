"""Forms from the types of the API: fields, and what was sent."""

from __future__ import annotations

from typing import Any

import pytest

from skep.center.app import api_table
from skep.center.http.openapi import describe
from skep.errors import InvalidInput
from skep.portal.show.forms import Form


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found: dict[str, Any] = describe(list(api_table()), "")
    return found


def test_a_form_has_the_fields_of_a_type(document: dict[str, Any]) -> None:
    form = Form.of(document, "AskedSettings", {"retries": 3, "robots": False})
    by_name = {one.name: one for one in form.fields}
    assert by_name["retries"].sort == "integer"
    assert by_name["retries"].value == "3"
    assert by_name["retries"].most == 1000
    assert by_name["robots"].sort == "switch"
    assert by_name["robots"].value == ""
    assert by_name["order"].choices == ["both", "host", "priority"]
    assert by_name["headers"].sort == "json"
    assert by_name["time_limit"].sort == "number"
    assert by_name["retries"].help


def test_what_was_sent_is_read_by_type(document: dict[str, Any]) -> None:
    form = Form.of(document, "AskedSettings", only=["retries", "robots", "time_limit", "headers"])
    sent = {"retries": ["7"], "robots": ["yes"], "time_limit": [""], "headers": ['{"a": "b"}']}
    assert form.read(sent) == {"retries": 7, "robots": True, "headers": {"a": "b"}}
    with pytest.raises(InvalidInput, match="retries"):
        form.read({"retries": ["seven"]})
