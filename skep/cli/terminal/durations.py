"""Durations on the command line: `90s`, `15min`, `1h`, `30d`.

Used by options of commands. A number without a unit is rejected; the unit is never guessed.
"""

from __future__ import annotations

import re

import click

UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SPAN = re.compile(r"([0-9]{1,9})(s|min|h|d)")


class Span(click.ParamType[float]):
    """Converts a number with a unit to seconds."""

    name = "span"

    def convert(
        self, value: str | float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Raises a usage error that shows the format."""
        if isinstance(value, float):
            return value
        found = _SPAN.fullmatch(str(value))
        if found is None or not int(found[1]):
            self.fail(f"{value!r} is not a duration; write 90s, 15min, 1h or 30d", param, ctx)
        return int(found[1]) * UNITS[found[2]]


SPAN = Span()
