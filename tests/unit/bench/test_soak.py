"""The judge of the soak finds a planted leak, and takes nothing else for one (fault 46)."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest

from bench import __main__ as command
from bench.figures import Wrong
from bench.options import Options
from bench.soak import bench
from bench.soak.slopes import FEWEST, after_warm_up, by_parts, fit, grows, piles_up, thirds, worth

#: As the bench samples: twelve minutes, every two seconds.
TIMES = [2.0 * n for n in range(360)]
Series = list[tuple[float, float]]


def memory(leak: float, noise: float = 0.5, wave: float = 0.0, seed: int = 1) -> Series:
    """100 MB, a warm-up that fills caches with 30, `leak` MB an hour, noise and a slow wave."""
    rng = Random(seed)
    return [
        (
            at,
            100 + 30 * (1 - math.exp(-at / 40)) + leak * at / 3600
            + rng.gauss(0, noise) + wave * math.sin(at / 30),
        )
        for at in TIMES
    ]  # fmt: skip


def files(every: float | None, seed: int = 1) -> Series:
    """20 to 28 open files, and one more permanently every `every` seconds."""
    rng = Random(seed)
    return [(at, 20.0 + rng.randrange(9) + (at // every if every else 0)) for at in TIMES]


def test_a_line_is_found_with_its_bounds() -> None:
    rng = Random(3)
    line = fit([(at, 7.0 + 36.0 * at / 3600 + rng.gauss(0, 0.3)) for at in TIMES])
    assert line.low < 36.0 < line.high
    assert line.slope == pytest.approx(36.0, abs=2.0)
    flat = fit([(at, 5.0) for at in TIMES])
    assert (flat.slope, flat.low, flat.high) == (0.0, 0.0, 0.0)
    with pytest.raises(ValueError, match="are too few for a line"):
        fit([(at, 1.0) for at in TIMES[: FEWEST - 1]])


@pytest.mark.parametrize("seed", range(5))
def test_a_planted_leak_of_memory_is_found(seed: int) -> None:
    """Fault 46: 20 MB an hour in twelve minutes, which is 4 MB in all; with waves of 1 MB on
    top it takes 60."""
    assert grows(after_warm_up(memory(20.0, seed=seed)), bench.MEMORY_BAR)
    assert grows(after_warm_up(memory(60.0, wave=1.0, seed=seed)), bench.MEMORY_BAR)


@pytest.mark.parametrize("seed", range(5))
def test_noise_waves_and_warming_up_are_no_leak(seed: int) -> None:
    """Fault 46: a heap that grows and shrinks is not a leak."""
    assert not grows(after_warm_up(memory(0.0, noise=5.0, seed=seed)), bench.MEMORY_BAR)
    assert not grows(after_warm_up(memory(0.0, wave=10.0, seed=seed)), bench.MEMORY_BAR)
    assert not grows(after_warm_up(memory(5.0, seed=seed)), bench.MEMORY_BAR)
    warm, steady = fit(memory(0.0, seed=seed)), fit(after_warm_up(memory(0.0, seed=seed)))
    assert abs(steady.slope) < bench.MEMORY_BAR < warm.slope, "caches that fill are left out"


@pytest.mark.parametrize("seed", range(5))
def test_files_that_pile_up_are_found(seed: int) -> None:
    """Fault 46: one every half a minute; not those that come and go, nor a single late one."""
    assert piles_up(after_warm_up(files(30.0, seed)))
    assert not piles_up(after_warm_up(files(None, seed)))
    once = [(at, value + (at > 500)) for at, value in files(None, seed)]
    assert not piles_up(after_warm_up(once))


def test_samples_that_are_alike_count_for_less() -> None:
    rng = Random(2)
    apart = [rng.gauss(0, 1) for _ in range(200)]
    steps = [value for value in apart[:10] for _ in range(20)]
    assert worth(apart) > 150
    assert worth(steps) < 20


def test_parts_and_thirds() -> None:
    series = [(float(n), float(n)) for n in range(120)]
    assert by_parts(series, 3) == [19.5, 59.5, 99.5]
    assert thirds(series, 0.5) == (20.0, 100.0)


def judged(**changes: Series) -> dict[str, Any]:
    """A center that is well, and an agent with these figures."""
    well = {"memory": memory(0.0), "files": files(None), "threads": files(None, seed=2)}
    return bench.judged([(at, 5.0) for at in TIMES], {"center": well, "agent": {**well, **changes}})


def test_every_leak_is_named() -> None:
    """Fault 46: whose it is, and of what."""
    assert judged()["leaks"] == []
    assert judged(memory=memory(50.0), threads=files(20.0))["leaks"] == [
        "memory of agent",
        "threads of agent",
    ]
    told = judged(memory=memory(50.0), files=files(20.0))
    assert told["leaks"] == ["memory of agent", "files of agent"]
    assert told["call_p99_ms"] == {"first_third": 5.0, "last_third": 5.0}
    slope, low = bench.worst({"sqlite": told})
    assert low < slope == pytest.approx(50.0, abs=5.0)


def test_it_is_asked_for_by_name_and_not_part_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Wrong, match="mongodb is not one of sqlite, embedded, postgres_redis"):
        bench.run(Options(sets=("mongodb",)))
    asked: list[str] = []

    def measure(name: str, _options: Options) -> dict[str, Any]:
        asked.append(name)
        return {"ok": True}

    monkeypatch.setattr(command, "measure", measure)
    monkeypatch.setattr(command, "table", lambda _told: "")
    monkeypatch.setattr(command, "write", lambda *_: None)
    assert command.main(["all"]) == command.main(["soak", "--minutes", "0.5"]) == 0
    assert asked == list(command.BENCHES)
