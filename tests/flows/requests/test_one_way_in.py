"""Every way in accepts and refuses the same requests, checks the disk and counts what is new.

The ways in are the calls of the intake in the source: a new one fails the first test until it has
an entry here, and then all others are about it, too.
"""

from __future__ import annotations

import ast
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from skep.center import disk_space
from skep.center.dispatcher_wake_up import DispatcherWakeUp
from skep.errors import DiskFull, SkepError
from skep.jobs import intake, request_validation
from skep.jobs.generators.generator_contract import GeneratorFailed
from skep.jobs.generators.generator_feed import Feed
from skep.jobs.generators.sitemap_source import SitemapSource
from skep.model.jobs.generator_progress import Generation
from skep.model.jobs.job import Generator, Job
from skep.model.request import URI_LIMIT, NewRequest
from skep.model.states import RunState
from skep.runtime.clock import SystemClock
from skep.testing.grounds.centers import Answer, RunningCenter, running_center

pytestmark = pytest.mark.asyncio(loop_scope="module")

SKEP = Path(__file__).parents[3] / "skep"
#: Functions that hand requests to the intake.
INTAKE_CALLS = ("intake.accept", "intake.accept_from", "accept_when_available")
#: The two that pass on what they are called with.
PASSING_ON = {"jobs/generators/generator_intake.py:accept_when_available"}
_numbers = count()


@dataclass(frozen=True)
class Outcome:
    """`code` of the error, "" = stored. Sources that leave invalid requests out say how many."""

    code: str = ""
    detail: str = ""
    left_out: int = 0


Send = Callable[[RunningCenter, str, list[NewRequest]], Awaitable[Outcome]]


@dataclass(frozen=True)
class WayIn:
    """One way in: the function in the source that calls the intake, and how a test uses it."""

    name: str
    site: str
    send: Send
    #: A generator goes on without the invalid requests.
    leaves_out: bool = False
    #: Takes one URI, and opens its run itself.
    one_uri: bool = False


def _told(answer: Answer) -> Outcome:
    if answer.status < 300:
        return Outcome()
    return Outcome(answer.problem().code, answer.problem().detail)


async def _raised(call: Awaitable[Any]) -> Outcome:
    try:
        await call
    except SkepError as error:
        return Outcome(error.code, error.detail)
    return Outcome()


async def submitted(center: RunningCenter, run: str, batch: list[NewRequest]) -> Outcome:
    return _told(await center.admin.post(f"/api/v1/runs/{run}/requests", batch))


async def submitted_by_alias(center: RunningCenter, run: str, batch: list[NewRequest]) -> Outcome:
    return _told(await center.admin.post(f"/requestqueue/{run}", batch))


async def driver_of(center: RunningCenter, run: str) -> int:
    try:
        return await center.services.store.checkpoints.take_over(run)
    except SkepError:  # there is no such run, and that is what the call is to say
        return 1


async def checkpointed(center: RunningCenter, run: str, batch: list[NewRequest]) -> Outcome:
    turn = {"driver": await driver_of(center, run), "requests": batch}
    return _told(await center.admin.post(f"/requestqueue/{run}/turn", turn))


async def requests_of_job(center: RunningCenter, run: str, batch: list[NewRequest]) -> Outcome:
    job = Job("j", requests=tuple(batch))
    return await _raised(center.services.jobs.feeder._plainly(run, _listing(job)))


def _listing(job: Job) -> Generator:
    return Generator("list", "requests", uris=job.requests)


class NoWaiting(SystemClock):
    """A generator waits while there is no room: its clock says for what instead."""

    def __init__(self, center: RunningCenter) -> None:
        self._center = center

    async def sleep(self, _seconds: float) -> None:
        self._center.services.disk.check()
        raise AssertionError("it waits for something else than room")


async def generated(center: RunningCenter, run: str, batch: list[NewRequest]) -> Outcome:
    services, part = center.services, Generator("list", "g", bad_limit=100)
    begun = await services.store.generations.begin(Generation(run, next(_numbers), "g", "list"))
    feed = Feed(services.store, services.intake, NoWaiting(center), Job("j"), part, begun)
    fields = [msgspec.structs.asdict(one) for one in batch]
    outcome = await _raised(feed.put(fields))
    counts = feed.counts()
    return outcome if outcome.code else Outcome("", counts.complaint, counts.bad)


def sitemaps(center: RunningCenter, run: str, url: str = "http://a.test/map") -> SitemapSource:
    services, part = center.services, Generator("sitemap", "m", url=url)
    source = SitemapSource(
        run,
        Job("j"),
        part,
        0,
        services.store,
        services.intake,
        services.archive,
        services.jobs.feeder.sources.boxes,
        NoWaiting(center),
    )
    source._run = run  # the test has named it
    return source


async def sitemap_children(center: RunningCenter, run: str, batch: list[NewRequest]) -> Outcome:
    driver = await driver_of(center, run)
    return await _raised(sitemaps(center, run)._read(driver, 0, batch))


async def first_sitemap(center: RunningCenter, run: str, batch: list[NewRequest]) -> Outcome:
    return await _raised(sitemaps(center, run, batch[0].uri)._opened())


WAYS = (
    WayIn("POST requests", "center/api/queue.py:put", submitted),
    WayIn("POST requestqueue", "center/api/queue.py:put", submitted_by_alias),
    WayIn("checkpoint", "center/api/driver.py:turn", checkpointed),
    WayIn("requests of a job", "jobs/generators/generator_feed.py:_plainly", requests_of_job),
    WayIn("generator", "jobs/generators/generator_feed.py:_accept", generated, leaves_out=True),
    WayIn("sitemaps in a sitemap", "jobs/generators/sitemap_source.py:_read", sitemap_children),
    WayIn("sitemap", "jobs/generators/sitemap_source.py:_opened", first_sitemap, one_uri=True),
)
every_way = pytest.mark.parametrize("way", WAYS, ids=[way.name for way in WAYS])
whole_batches = pytest.mark.parametrize(
    "way", [way for way in WAYS if not way.one_uri], ids=lambda way: way.name
)


async def test_every_call_of_the_intake_is_tried_here() -> None:
    """A new source of requests needs an entry in `WAYS`."""
    found = {site for path in SKEP.rglob("*.py") for site in _sites(path)}
    outside = {site for site in found if not site.startswith(("testing/", "jobs/intake.py:"))}
    assert outside == {way.site for way in WAYS} | PASSING_ON


def _sites(path: Path) -> set[str]:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    functions = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds))
    return {
        f"{path.relative_to(SKEP).as_posix()}:{function.name}"
        for function in functions
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith(INTAKE_CALLS)
    }


# -- centers, and what they counted


class Counted:
    """A center whose dispatcher's wake-ups are counted."""

    def __init__(self, center: RunningCenter, woken: list[int]) -> None:
        self.center = center
        self._woken = woken

    async def send(self, way: WayIn, run: str, batch: list[NewRequest]) -> tuple[Outcome, int]:
        """What came of it, and how many are new; ledger, metric and wake-up agree on it."""
        before = await self._figures()
        woken = len(self._woken)
        outcome = await way.send(self.center, run, batch)
        after = await self._figures()
        new = after[0] - before[0]
        assert after[1] - before[1] == new, "skep_requests_accepted is not what was accepted"
        assert not new or len(self._woken) > woken, "the dispatcher was not told"
        return outcome, new

    async def _figures(self) -> tuple[int, float]:
        accepted = (await self.center.services.store.ledgers.read()).accepted
        return accepted, await self.center.metric("skep_requests_accepted_total")

    async def opened(self) -> str:
        run = f"r{next(_numbers)}"
        await self.center.open_run(run)
        return run


@asynccontextmanager
async def counted_center(folder: Path) -> AsyncIterator[Counted]:
    woken: list[int] = []
    request = DispatcherWakeUp.request

    def noted(wake_up: DispatcherWakeUp) -> None:
        woken.append(1)
        request(wake_up)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DispatcherWakeUp, "request", noted)
        patch.setattr(disk_space, "TRIAL_EVERY", 1e9)
        async with running_center(folder) as center:
            yield Counted(center, woken)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def counted(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Counted]:
    async with counted_center(tmp_path_factory.mktemp("center")) as center:
        yield center


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def full(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Counted]:
    """Its disk is full."""
    async with counted_center(tmp_path_factory.mktemp("full")) as center:
        yield center


def requests(number: int = 3) -> list[NewRequest]:
    return [NewRequest(f"http://a.test/{next(_numbers)}") for _ in range(number)]


# -- the same outcome everywhere


@every_way
async def test_what_is_valid_is_accepted_and_counted(counted: Counted, way: WayIn) -> None:
    """D1, D2: and sent again it is known, whatever way it came first."""
    run, batch = await counted.opened(), requests(1 if way.one_uri else 3)
    outcome, new = await counted.send(way, run, batch)
    assert (outcome, new) == (Outcome(), len(batch))
    _, again = await counted.send(WAYS[0], run, batch)
    assert again == 0


@every_way
async def test_a_full_disk(full: Counted, way: WayIn) -> None:
    """Fault 25: nothing is accepted, and a generator waits."""
    run = await full.opened()
    full.center.services.disk.heard(DiskFull("no room, a test says"))
    outcome, new = await full.send(way, run, requests(1))
    assert (outcome.code, outcome.detail, new) == ("disk_full", "no room, a test says", 0)
    full.center.services.disk.trouble = ""


@whole_batches
async def test_an_unknown_run(counted: Counted, way: WayIn) -> None:
    outcome, new = await counted.send(way, f"none{next(_numbers)}", requests())
    assert (outcome.code, new) == ("unknown_run", 0)


@every_way
async def test_a_cancelled_run(counted: Counted, way: WayIn) -> None:
    await _ended(counted, way, RunState.CANCELLED)


@whole_batches
async def test_a_finished_run(counted: Counted, way: WayIn) -> None:
    """One that reads sitemaps asks for none any more when it is finished."""
    await _ended(counted, way, RunState.FINISHED)


async def _ended(counted: Counted, way: WayIn, end: RunState) -> None:
    run = await counted.opened()
    await counted.center.services.intake.move(run, end)
    outcome, new = await counted.send(way, run, requests(1))
    assert (outcome.code, new) == ("conflict", 0)


@whole_batches
async def test_too_many_requests(
    counted: Counted, way: WayIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source that leaves invalid requests out does not go round the limit either."""
    for module in (request_validation, intake):
        monkeypatch.setattr(module, "BATCH_LIMIT", 20)
    run = await counted.opened()
    outcome, new = await counted.send(way, run, requests(21))
    assert (outcome.code, new) == ("too_large", 0)
    assert "21 requests" in outcome.detail
    assert (await counted.send(way, run, requests(20)))[1] == 20


HOSTS = st.from_regex(r"[a-z]{1,10}\.test", fullmatch=True)
PATHS = st.from_regex(r"[a-z0-9]{1,20}", fullmatch=True)
VALID = st.builds(
    NewRequest,
    st.builds("http://{}/{}".format, HOSTS, PATHS),
    priority=st.none() | st.integers(-1, 5),
    method=st.sampled_from(["GET", "HEAD"]),
    meta=st.dictionaries(PATHS, st.integers(0, 9), max_size=2),
)
INVALID = st.one_of(
    st.builds(NewRequest, st.builds("nosuch://{}/".format, HOSTS)),
    st.builds(NewRequest, PATHS),
    st.builds(NewRequest, st.builds("http://{}:99999/".format, HOSTS)),
    st.builds(lambda host: NewRequest(f"http://{host}/{'x' * URI_LIMIT}"), HOSTS),
    st.builds(NewRequest, st.just("http://a.test/"), priority=st.sampled_from([-2, 6])),
    st.builds(NewRequest, st.just("http://a.test/"), method=st.sampled_from(["get", ""])),
    st.builds(NewRequest, st.just("http://a.test/"), expires_in=st.sampled_from([0.0, 1e12])),
    st.builds(NewRequest, st.just("http://a.test/"), headers=st.just({"A": "b\r\nC: d"})),
)
BATCHES = st.tuples(
    st.lists(VALID, max_size=4, unique_by=lambda one: (one.uri, one.method)),
    INVALID,
    st.integers(0, 4),
)


@given(drawn=BATCHES)
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],  # each example is some dozen calls: shrinking would take minutes
)
async def test_one_invalid_request(
    counted: Counted, drawn: tuple[list[NewRequest], NewRequest, int]
) -> None:
    """D1: refused by every way, for the same reason and at the same position; none is stored, or
    by a generator all but that one."""
    valid, invalid, at = drawn
    batch = [*valid[:at], invalid, *valid[at:]]
    expected, _ = await counted.send(WAYS[0], await counted.opened(), batch)
    assert expected.code in {"invalid_input", "not_a_url", "unknown_scheme", "too_large"}
    position, _, why = expected.detail.partition(": ")
    assert position == f"request {batch.index(invalid)}"
    for way in WAYS[1:]:
        run = await counted.opened()
        if way.one_uri:
            only = [NewRequest(invalid.uri, priority=0)]
            same = await counted.send(WAYS[0], await counted.opened(), only)
            assert await counted.send(way, run, only) == same
        elif way.leaves_out:
            assert await counted.send(way, run, batch) == (Outcome("", why, 1), len(valid))
        else:
            assert await counted.send(way, run, batch) == (expected, 0)


async def test_a_generator_fails_over_its_limit_of_invalid_requests(counted: Counted) -> None:
    """Counted with those that cannot be read at all, in the order in which they came."""
    services, run = counted.center.services, await counted.opened()
    begun = await services.store.generations.begin(Generation(run, 0, "g", "list"))
    part = Generator("list", "g", bad_limit=2)
    feed = Feed(services.store, services.intake, SystemClock(), Job("j"), part, begun)
    mixed: Sequence[Any] = ["nosuch://a/", "http://a.test/1", {"uri": 7}]
    assert (await feed.put(mixed)).new == 1
    assert (feed.counts().bad, "7" in feed.counts().complaint) == (2, True)
    with pytest.raises(GeneratorFailed, match=r"3 of 5 URIs are invalid.*unknown://"):
        await feed.put(["http://a.test/2", "unknown://b/"])
    kept = (await services.store.generations.of(run))[0]
    assert (kept.yielded, kept.taken, kept.bad) == (5, 2, 3)
