"""A length of time on the command line: `90s`, `15min`, `1h`, `30d`.

Used by options of commands; a number without its unit is refused, never guessed.
"""

from __future__ import annotations

import re

import click

UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SPAN = re.compile(r"([0-9]{1,9})(s|min|h|d)")


class Span(click.ParamType[float]):
    """Seconds, from a number with its unit."""

    name = "span"

    def convert(
        self, value: str | float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Raises a usage error that says how it is written."""
        if isinstance(value, float):
            return value
        found = _SPAN.fullmatch(str(value))
        if found is None or not int(found[1]):
            self.fail(f"{value!r} is not written like 90s, 15min, 1h or 30d", param, ctx)
        return int(found[1]) * UNITS[found[2]]


SPAN = Span()
