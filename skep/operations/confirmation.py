"""The text by which a caller confirms a dry run: what was shown, and when. Pure.

It keeps a caller from confirming another act, another filter or more objects than were shown. It is
not a secret and gives no permission.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from skep.errors import Conflict, InvalidInput

#: Seconds for which the result of a dry run can be confirmed.
VALID = 3600.0
_FORM = re.compile(r"(\d{1,18})(\+?)@(\d{1,12}\.\d{3})-([0-9a-f]{16})")
_ADVICE = "make a dry run and send the `confirm` of its answer"


class DryRunResult(NamedTuple):
    """What a dry run showed."""

    matched: int
    exact: bool
    moment: float


def confirmation(what: tuple[Any, ...], shown: DryRunResult) -> str:
    """`532@1763459999.123-0a1b...`; `what` is the act with its filter and arguments."""
    head = f"{shown.matched}{'' if shown.exact else '+'}@{shown.moment:.3f}"
    return f"{head}-{_digest(what, head)}"


def read_confirmation(text: str, what: tuple[Any, ...], now: float) -> DryRunResult:
    """Raises InvalidInput when it is not for this call, and Conflict when it is too old."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise InvalidInput(f"{text[:60]!r} is not a confirmation; {_ADVICE}")
    shown = DryRunResult(int(found[1]), not found[2], float(found[3]))
    if found[4] != _digest(what, text.rpartition("-")[0]):
        raise InvalidInput(f"the confirmation is for another act, filter or argument; {_ADVICE}")
    if not -VALID < shown.moment - now <= 1.0:
        raise Conflict(f"the dry run is older than {VALID / 60:.0f} minutes; {_ADVICE}")
    return shown


def _digest(what: tuple[Any, ...], head: str) -> str:
    data = msgspec.json.encode((what, head), order="sorted")
    return blake2b(data, digest_size=8).hexdigest()
