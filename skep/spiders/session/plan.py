"""What a session is asked to do, and what came of it. Pure data.

Made by the command line before a spider is loaded, so it imports nothing large.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skep.model.ledger import Ledger
    from skep.spiders.authoring.spider import Spider
    from skep.spiders.driving.stats import Ending
    from skep.spiders.session.item_sinks import SinkProgress


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """One spider, its run and its outputs."""

    spider: Spider
    #: For the positions of sinks that cannot keep their own.
    folder: Path
    #: URLs of sinks.
    outputs: tuple[str, ...] = ()
    #: Those of them that are files and are deleted first.
    overwritten: tuple[str, ...] = ()
    #: Name of a new run; None = one is made.
    run: str | None = None
    #: Name of the run to go on with; "" = the newest unfinished one, None = a new run.
    resume: str | None = None


@dataclass(frozen=True, slots=True)
class SessionResult:
    """How a session ended."""

    run: str
    spider: str
    ending: Ending
    outputs: list[SinkProgress]
    #: Of the whole run; None when the center did not answer any more.
    ledger: Ledger | None
    #: A signal has come.
    interrupted: bool = False

    @property
    def every_callback_raised(self) -> bool:
        """Pages came, and not one of them could be parsed."""
        stats = self.ending.stats
        return 0 < stats.pages <= stats.callback_errors
