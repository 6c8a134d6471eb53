"""Wall-clock and CPU time of this process, added up over the measured parts."""

from __future__ import annotations

import time
from types import TracebackType


class Stopwatch:
    """`with watch:` around each part; the time in between does not count."""

    def __init__(self) -> None:
        self.seconds = 0.0
        #: User and system time of all threads.
        self.cpu = 0.0
        self._begun = (0.0, 0.0)

    def __enter__(self) -> None:
        self._begun = (time.perf_counter(), time.process_time())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        seconds, cpu = self._begun
        self.seconds += time.perf_counter() - seconds
        self.cpu += time.process_time() - cpu
