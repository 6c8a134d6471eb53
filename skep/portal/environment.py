"""The template engine: one environment for a process, with escaping on. Loaded at the first page.

Templates get texts, links and formats from here; they never get the API.
"""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from skep.portal.panels import Refused
from skep.portal.preferences import LANGUAGES, THEMES
from skep.portal.show import (
    cells,
    commands,
    diffs,
    freeing_acts,
    names,
    numbers,
    ranges,
    states,
    tables,
    times,
)


@cache
def environment() -> Environment:
    """Autoescape is on for every template; a missing value is an error, not an empty text."""
    made = Environment(
        loader=PackageLoader("skep.portal", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.globals |= {
        "languages": LANGUAGES,
        "themes": THEMES,
        "spans": list(ranges.SPANS),
        "state_mark": states.state_mark,
        "moment": times.moment,
        "clock_time": times.clock_time,
        "cells": cells,
        "filter_url": tables.filter_url,
        "command_of": commands.command,
        "curl": commands.curl,
        "act_of": freeing_acts.act_of,
        "diff_lines": diffs.diff_lines,
    }
    made.tests["refused"] = lambda value: isinstance(value, Refused)
    made.filters |= {
        "number": numbers.number,
        "rate": numbers.rate,
        "size": numbers.size,
        "duration": numbers.duration,
        "middle_cut": names.middle_cut,
        "held": names.held,
    }
    return made
