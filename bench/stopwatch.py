"""Wall clock and CPU of this process, added up over the parts that count."""

from __future__ import annotations

import time
from types import TracebackType


class Stopwatch:
    """`with watch:` around each part; what lies between is nobody's time."""

    def __init__(self) -> None:
        self.seconds = 0.0
        #: User and system, of all threads.
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
