"""A host as a word and a pace as short texts. Pure."""

from __future__ import annotations

from skep.model.hosts.host import SiteView
from skep.portal.show.numbers import NONE, number


def host_word(view: SiteView, now: float) -> str:
    """paused, probing (one request at a time after a pause), held by a block, or idle."""
    if view.cooling_until > now:
        return "paused"
    if view.strikes:
        return "probing"
    return "held" if view.block is not None else "idle"


def host_rate(view: SiteView) -> str:
    """Requests per second that all agents together may start; a dash = no limit."""
    spacing = max(view.pace.spacing, view.pace.delay) if view.pace else 0.0
    return f"{number(1 / spacing)}/s" if spacing else NONE


def host_concurrency(view: SiteView) -> str:
    return number(view.pace.concurrency) if view.pace else NONE
