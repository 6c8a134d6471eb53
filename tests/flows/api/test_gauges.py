"""/metrics answers from memory; what it shows of store and bus is read in the background."""

from __future__ import annotations

from pathlib import Path

from skep.center.gauges import EVERY, REST, Gauges
from skep.center.metrics import Metrics
from skep.testing.clock import ManualClock
from skep.testing.grounds.centers import running_center
from skep.testing.polling import until


async def test_no_call_asks_the_store(tmp_path: Path) -> None:
    """E11: it answers while the store is closed, with the figures of the last look."""
    async with running_center(tmp_path / "data") as center:
        await center.open_run("r")
        await center.put("r", ["http://a.test/1", "http://a.test/2"])
        await center.hand_agent("a1").register()
        await center.dispatched()
        await center.services.gauges.look()
        await center.services.store.close()
        text = (await center.anyone.get("/metrics")).content.decode()
        assert 'skep_requests{state="queued"} 2.0' in text
        assert 'skep_queue_depth{lane="low"} 2.0' in text
        assert "skep_agents_up 1.0" in text
        await center.services.store.open()


async def test_figures_follow_by_themselves(tmp_path: Path) -> None:
    """E11: within seconds, without any call."""
    async with running_center(tmp_path / "data") as center:
        await center.open_run("r")
        await center.put("r", ["http://a.test/1"])

        async def shown() -> bool:
            text = (await center.anyone.get("/metrics")).content.decode()
            return 'skep_requests{state="queued"} 1.0' in text

        await until(shown, seconds=EVERY + 15)


class SlowClock(ManualClock):
    """On which every look takes three seconds."""

    def monotonic(self) -> float:
        self.advance(3.0)
        return super().monotonic()


async def test_a_sum_that_takes_long_is_made_seldom(tmp_path: Path) -> None:
    """E11: the sum over all runs takes a fiftieth of the time at most."""
    async with running_center(tmp_path / "data") as center:
        services, metrics = center.services, Metrics()
        borders = services.store, services.bus, services.roster, metrics
        assert await Gauges(*borders, ManualClock()).look() == EVERY
        assert await Gauges(*borders, SlowClock()).look() == 3.0 * REST
