"""How a poll of a git repository can fail. Pure."""

from __future__ import annotations

from typing import Literal

#: `transient` is everything that another try may cure: time-outs, 5xx, an unreadable answer.
PollFailureKind = Literal["transient", "not_found", "refused", "too_large"]
