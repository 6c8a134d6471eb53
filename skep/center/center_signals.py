"""Signals between the parts of one center: what changed, and which loops and callers check again.

Signals are created before the parts, so that each part gets those that it may use as an
argument. A signal only means that something may have changed; it decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from skep.center.dispatcher_wake_up import DispatcherWakeUp
from skep.center.foundation import Foundation
from skep.jobs.runs.run_wake_ups import RunWakeUps
from skep.lanes.long_poll import LongPolls
from skep.runtime.signals import Signal, WakeUp


@dataclass(frozen=True, slots=True)
class CenterSignals:
    """The signals of one center, by what is waited for."""

    #: Agents that wait for a block.
    work: LongPolls
    #: Drivers that wait for ended requests.
    pages: Signal
    #: The dispatcher, here or at another center.
    dispatcher: DispatcherWakeUp
    #: The loop that announces work to other centers.
    announce: WakeUp
    #: Supervisors of runs.
    runs: RunWakeUps
    #: Live updates: the state of a run may have changed.
    changes: Signal

    @classmethod
    def of(cls, base: Foundation) -> CenterSignals:
        clock, polls = base.clock, LongPolls(base.bus.lanes.targets)
        return cls(
            polls, Signal(), DispatcherWakeUp(clock), WakeUp(clock), RunWakeUps(clock), Signal()
        )

    def there_is_work(self) -> None:
        """Blocks can be leased."""
        self.work.notify()
        self.announce.notify()

    def look_again(self) -> None:
        """Agents of a run are lost or back."""
        self.dispatcher.request()
        self.pages.notify()

    def wake_run(self, run: str) -> None:
        """The state of a run may have changed."""
        self.pages.notify()
        self.changes.notify()
        self.runs.wake(run)
