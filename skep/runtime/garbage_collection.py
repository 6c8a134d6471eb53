"""The garbage collector of a process that lives long and keeps many small things.

Called once by a process that has finished starting. What a start has left is kept for good
and not looked through again, and collections are made less often: with a thousand waiting
callers a full one takes a third of a second, in which nobody is answered.
"""

from __future__ import annotations

import gc

#: New objects before a collection of the youngest, and how many of those before an older one.
YOUNGEST, OLDER, OLDEST = 50_000, 50, 100


def collect_less_often() -> None:
    """Whatever is there now stays until the process ends. A start leaves about a hundred objects
    that could be collected; to look for them first would take longer than they are worth."""
    gc.freeze()
    gc.set_threshold(YOUNGEST, OLDER, OLDEST)
