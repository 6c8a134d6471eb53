"""Labels of jobs and runs: short names with values, for filters and for scopes. Pure data.

Used by every process. Agents have labels with rules of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

#: Labels of one job or run.
LABELS_LIMIT = 32
NAME_LENGTH, VALUE_LENGTH = 63, 100
#: No sign that means something in a filter (`:`, `=`, `,`, `*`, quotes, spaces).
_NAME = rf"^[A-Za-z0-9][A-Za-z0-9._/-]{{0,{NAME_LENGTH - 1}}}$(?!\n)"
_VALUE = rf"^[^\x00-\x1f\x7f]{{0,{VALUE_LENGTH}}}$(?!\n)"

LabelName = Annotated[str, Meta(pattern=_NAME)]
LabelValue = Annotated[str, Meta(pattern=_VALUE)]
Labels = Annotated[dict[LabelName, LabelValue], Meta(max_length=LABELS_LIMIT)]
#: In words, for errors.
LABEL_WORDS = (
    f"at most {LABELS_LIMIT} labels; a name has 1 to {NAME_LENGTH} letters, digits, `.`, `_`, `/`"
    f" and `-`, a value up to {VALUE_LENGTH} characters"
)


def relabelled(
    known: Mapping[str, str], add: Mapping[str, str], remove: Collection[str]
) -> dict[str, str]:
    """Labels after a change; raises ValueError when they break a rule."""
    kept = {name: value for name, value in known.items() if name not in remove}
    return checked_labels({**kept, **add})


def checked_labels(given: Mapping[str, str]) -> dict[str, str]:
    """Raises ValueError for labels that break a rule."""
    try:
        return msgspec.convert(dict(given), Labels)
    except msgspec.ValidationError as error:
        raise ValueError(f"these labels are not valid ({error}); use {LABEL_WORDS}") from None
