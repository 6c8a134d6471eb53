"""A rolling upgrade with a real older version (fault 44): the code of an earlier commit.

The older programs run from a copy that git makes of its history; without that history (a
shallow clone) there is nothing to compare with, and the tests are skipped.
"""

from __future__ import annotations

import asyncio
import gzip
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from skep.archive.records import read_records, split_stored
from skep.testing.fleet import Fleet, tell
from skep.testing.needs import absent
from skep.testing.private import NotPermitted
from skep.testing.processes import AgentProcess, CenterProcess
from skep.testing.servers.hostile_http import HostileServer, says

ROOT = Path(__file__).parents[3]
#: The last commit before application jobs; its protocol is 1, its schema an older one.
OLDER = "904fdbb1571c4fe9c1992ea85113a595b1a93087"
OLD_VERSION = "0.0.9"
PAGES = 300


class OlderCode:
    """Runs `python -m skep` out of another folder; a mixin of processes."""

    code: Path

    def _process_options(self) -> dict[str, Any]:
        options: dict[str, Any] = super()._process_options()  # type: ignore[misc]  # SkepProcess
        env = {**options["env"], "PYTHONPATH": str(self.code)}
        # The working directory comes before PYTHONPATH for `python -m`.
        return {**options, "env": env, "cwd": self.code}


class OlderCenter(OlderCode, CenterProcess):
    """A center of that version."""


class OlderAgent(OlderCode, AgentProcess):
    """An agent of that version."""


def copied(folder: Path, changes: dict[str, tuple[str, str]]) -> Path:
    """The package as it was; with a word or two of it changed."""
    known = subprocess.run(
        ["git", "cat-file", "-e", f"{OLDER}^{{commit}}"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if known.returncode:
        absent(NotPermitted("a shallow clone has no older version of the package"))
    folder.mkdir()
    packed = subprocess.run(
        ["git", "archive", OLDER, "skep"], cwd=ROOT, capture_output=True, check=True
    )
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed.stdout, check=True)
    for name, (before, after) in changes.items():
        file = folder / "skep" / name
        assert before in file.read_text()
        file.write_text(file.read_text().replace(before, after))
    return folder


@pytest.fixture
def older(tmp_path: Path) -> Path:
    return copied(tmp_path / "older", {"__init__.py": ('"0.1.0"', f'"{OLD_VERSION}"')})


async def versions(fleet: Fleet) -> list[str]:
    """What each agent said of itself when it was last taken."""
    answer = await fleet.client.api.call("GET", "/api/v1/agents", None, dict)
    return sorted(line["agent"]["registration"]["version"] for line in answer["items"])


async def test_centers_first_then_agents_and_nothing_is_lost(tmp_path: Path, older: Path) -> None:
    """Fault 44: an older center and its agent work; the center is replaced under load, then one
    more agent comes, then the older agent is replaced; every page once."""
    fleet = Fleet(tmp_path, latency=0.05, pages=PAGES)
    before = OlderCenter(tmp_path / "center")
    before.code = older
    fleet.center = before
    async with fleet:
        agent = OlderAgent(tmp_path / "a", [before.url], before.agent_token)
        agent.code = older
        with agent:
            await fleet.offer(PAGES // 3)
            assert await versions(fleet) == [OLD_VERSION]
            await fleet.until_done(20)
            await asyncio.to_thread(before.terminate)
            now = CenterProcess(tmp_path / "center")
            now.port = before.port
            with now:
                fleet.center = now
                await fleet.offer(PAGES // 3)
                done = (await fleet.client.ledger()).done
                await fleet.until_done(min(PAGES, done + 50))
                assert await versions(fleet) == [OLD_VERSION], "the older agent works for it"
                await asyncio.to_thread(agent.terminate)
                await fleet.agent("a")
                await fleet.offer(PAGES // 3)
                await fleet.until_all_ended(60)
                assert OLD_VERSION not in await versions(fleet)
                balance = await fleet.check()
    tell("44", older=OLDER[:7], **balance.figures())
    assert (balance.acknowledged, balance.ledger.done) == (PAGES, PAGES)


@pytest.mark.parametrize("center", ["older", "newer"])
@pytest.mark.parametrize("agent", ["older", "newer"])
async def test_bodies_with_a_coding_between_two_versions(
    tmp_path: Path, older: Path, center: str, agent: str
) -> None:
    """H6: an older center does not decode what it has stored, so agents send it decoded bodies;
    a newer one gets them as they came, and gives them out decoded. Each reads each."""
    body = b"<p>some text</p>" * 500
    zipped = says(gzip.compress(body), headers=[("Content-Encoding", "gzip")])
    fleet = Fleet(tmp_path)
    if center == "older":
        fleet.center = before = OlderCenter(tmp_path / "center")
        before.code = older
    async with HostileServer({"/zipped": zipped}) as server, fleet:
        url, token = fleet.center.url, fleet.center.agent_token
        working = (OlderAgent if agent == "older" else AgentProcess)(tmp_path / "a", [url], token)
        if isinstance(working, OlderAgent):
            working.code = older
        with working:
            await fleet.client.offer([server.url("/zipped")])
            await fleet.until_done(1)
            call = fleet.client.api.call
            assert await call("GET", "/api/v1/requests/1/body", None, bytes) == body
            record = await call("GET", "/api/v1/requests/1/record", None, bytes)
    stored = split_stored(read_records(record)[0]).body
    assert (stored == body) is ("older" in {center, agent})


def test_a_protocol_that_is_too_far_away_is_refused_with_advice(tmp_path: Path) -> None:
    """Fault 44: the agent ends at once, and its last words say which side to upgrade."""
    with CenterProcess(tmp_path / "center") as center:
        for spoken, advice in {0: "upgrade the caller", 9: "upgrade this center first"}.items():
            word = ("\nPROTOCOL = 1\n", f"\nPROTOCOL = {spoken}\n")
            code = copied(tmp_path / f"strange-{spoken}", {"wire/messages.py": word})
            done = refused_agent(code, center, tmp_path / "agent")
            assert done.returncode == 2
            assert f"protocol '{spoken}' is not supported; this center (Skep" in done.stderr
            assert advice in done.stderr
            assert "docs/how-to/upgrade.md" in done.stderr


def refused_agent(
    code: Path, center: CenterProcess, data: Path
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "skep", "agent", "--center", center.url]
    command += ["--token-file", str(center.agent_token), "--data", str(data)]
    return subprocess.run(
        command, cwd=code, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.slow
async def test_centers_of_two_versions_share_store_and_bus(
    tmp_path: Path, older: Path, shared: dict[str, str]
) -> None:
    """Fault 44: two older centers and an older agent under load; the centers are replaced one
    after the other, and in between one of each works. Lost 0."""
    fleet = Fleet(tmp_path, shared, latency=0.05, pages=PAGES)
    first, second = (OlderCenter(tmp_path / name, shared) for name in ("center", "second"))
    first.code = second.code = older
    fleet.center = first
    with ExitStack() as stack:
        async with fleet:
            await asyncio.to_thread(stack.enter_context, second)
            await fleet.reach(first, second)
            agent = OlderAgent(tmp_path / "a", [first.url, second.url], first.agent_token)
            agent.code = older
            await asyncio.to_thread(stack.enter_context, agent)
            for old in (first, second):
                await fleet.offer(PAGES // 4)
                done = (await fleet.client.ledger()).done
                await fleet.until_done(min(PAGES, done + 30))
                await asyncio.to_thread(old.terminate)
                new = CenterProcess(old.folder, shared)
                new.port = old.port
                await asyncio.to_thread(stack.enter_context, new)
                await fleet.offer(PAGES // 4)
                done = (await fleet.client.ledger()).done
                await fleet.until_done(min(PAGES, done + 30))
            await fleet.until_all_ended(60)
            assert await versions(fleet) == [OLD_VERSION]
            balance = await fleet.check()
            retries = fleet.client.retries
    tell("44", centers=2, failed_calls=retries, **balance.figures())
    assert (balance.acknowledged, balance.ledger.done, retries) == (PAGES, PAGES, 0)
