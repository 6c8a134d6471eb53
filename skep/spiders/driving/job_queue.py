"""The queue of a run that a job keeps: the driver never pauses or continues such a run.

Runs in the spider's process when a center started it. Such a process may be stopped and
started again at any time: a start must not continue a run that a person paused, and a stop must
not pause a run that only changes its process.
"""

from __future__ import annotations

from skep.spiders.driving.http_queue import HttpQueue


class JobQueue(HttpQueue):
    """Set `leaving` when the process was asked to end."""

    leaving = False

    async def move(self, verb: str) -> None:
        if verb != "continue" and not self._only_leaves(verb):
            await super().move(verb)

    async def end(self, verb: str, reason: str) -> None:
        if not self._only_leaves(verb):
            await super().end(verb, reason)

    def _only_leaves(self, verb: str) -> bool:
        return self.leaving and verb == "pause"
