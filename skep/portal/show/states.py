"""States as word, color and shape: one table for all nouns. Pure.

The word comes from the catalogue (`states.WORD`); the look is a class of the style sheet. A state
that is not in the table is shown as waiting, with its own word.
"""

from __future__ import annotations

from dataclasses import dataclass

#: running: blue dot; waiting: grey square; slowed: amber triangle; failed: red diamond;
#: finished: green dot; off: grey ring.
LOOKS = {
    "run": (
        "running",
        "leased",
        "held",
        "collecting",
        "starting",
        "active",
        "draining",
        "firing_now",
        "claimed",
    ),
    "wait": ("waiting", "queued", "planned", "pending", "scheduled", "disabled", "deleted", "info"),
    "slow": (
        "slowed",
        "delayed",
        "paused",
        "warning",
        "late",
        "cordoned",
        "muted",
        "missed",
        "probing",
        "full",
        "alert",
    ),
    "fail": (
        "failed",
        "dead",
        "agent_dead",
        "firing",
        "critical",
        "error",
        "revoked",
        "refused",
        "expired",
        "given_up",
    ),
    "done": (
        "finished",
        "done",
        "alive",
        "enabled",
        "resolved",
        "ok",
        "success",
        "started",
        "delivered",
        "live",
        "told",
        "fired",
    ),
    "off": ("cancelled", "ignored", "skipped", "coalesced", "acknowledged", "stopped", "used"),
}
_BY_WORD = {word: look for look, words in LOOKS.items() for word in words}


@dataclass(frozen=True, slots=True)
class StateMark:
    """The word of the API and the look."""

    word: str
    look: str


def state_mark(word: str) -> StateMark:
    return StateMark(word, _BY_WORD.get(word, "wait"))
