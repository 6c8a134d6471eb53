"""Conformance tests of a store for applications. Part of `StoreConformance`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from skep.errors import Conflict, NotFound, StaleToken, UnknownRun
from skep.model.jobs.app import AppSpec, Instance, InstanceState
from skep.model.states import RunState
from skep.store.ports import Store
from skep.store.ports.apps import LogPiece, Package, ReportedInstance
from skep.testing.conformance.store.ground import NOW, new_run

SPEC = AppSpec(command=("run", "it"), package="d" * 64, environment={"A": "ü"})
ROOM = 2**20
DAY = 86400.0


async def placed(store: Store, *agents: str, run: str = "run") -> list[Instance]:
    await new_run(store, run)
    return await store.apps.create(run, SPEC, {"KEY": "name"}, agents or ("a1",), NOW)


def told(one: Instance, state: str, **more: Any) -> ReportedInstance:
    return ReportedInstance(one.run, one.no, one.token, InstanceState(state), **more)


async def one_of(store: Store, no: int = 0, run: str = "run") -> Instance:
    return (await store.apps.of(run))[no]


def piece(offset: int, data: bytes, token: int = 1, dropped: int = 0) -> LogPiece:
    return LogPiece("run", 0, token, offset, data, dropped)


class AppPromises:
    async def test_instances_are_made_once(self, store: Store, other_store: Store) -> None:
        """A8, C9: two centers that start the same run create its instances once."""
        with pytest.raises(UnknownRun):
            await store.apps.create("run", SPEC, {}, ["a1"], NOW)
        assert await store.apps.get("run") is None
        await new_run(store)
        both = await asyncio.gather(
            store.apps.create("run", SPEC, {"KEY": "name"}, ["a1", "a2"], NOW),
            other_store.apps.create("run", SPEC, {"KEY": "name"}, ["a3", "a4"], NOW),
        )
        assert both[0] == both[1] == await store.apps.of("run")
        assert [(i.no, i.token, i.state) for i in both[0]] == [(0, 1, "waiting"), (1, 1, "waiting")]
        app = await store.apps.get("run")
        assert app is not None
        assert (app.spec, app.secrets, app.at) == (SPEC, {"KEY": "name"}, NOW)

    async def test_an_agent_reports_its_instances(self, store: Store) -> None:
        first, second = await placed(store, "a1", "a2")
        assert await store.apps.report("a1", [told(first, "starting", starts=1)], NOW + 1) == 0
        assert await store.apps.report("a1", [told(second, "running")], NOW + 1) == 1, "not its own"
        running = told(first, "running", starts=2, reason="x\0y")
        assert await store.apps.report("a1", [running, running], NOW + 2) == 0
        now = await one_of(store)
        assert (now.state, now.starts, now.reason) == ("running", 2, "x\ufffdy")
        assert now.changed_at == NOW + 2
        await store.apps.report("a1", [told(first, "done", starts=2, exit_code=0)], NOW + 3)
        await store.apps.report("a1", [told(first, "running", starts=2)], NOW + 4)
        now = await one_of(store)
        assert (now.state, now.exit_code, now.changed_at) == ("done", 0, NOW + 3), "an end stays"
        assert (await one_of(store, 1)).state == "waiting"

    async def test_a_placing_fences_the_agent_before_out(
        self, store: Store, other_store: Store
    ) -> None:
        """A8: one agent at a time; if two centers place an instance, one succeeds."""
        (old,) = await placed(store)
        await store.apps.report("a1", [told(old, "running", starts=3)], NOW)
        results = await asyncio.gather(
            store.apps.place(old, "a2", "a1 was lost", NOW + 9),
            other_store.apps.place(old, "a3", "a1 was lost", NOW + 9),
        )
        assert sorted(results) == [False, True]
        new = await one_of(store)
        assert (new.state, new.token, new.agent) == ("waiting", 2, "a2" if results[0] else "a3")
        assert new.reason == "a1 was lost"
        assert await store.apps.report("a1", [told(old, "done")], NOW + 10) == 1
        assert await store.apps.report(new.agent, [told(new, "running", starts=1)], NOW + 10) == 0
        assert (await one_of(store)).starts == 4, "over all agents"
        with pytest.raises(StaleToken):
            await store.apps.add_log("a1", piece(0, b"late"), ROOM, NOW)
        assert await store.apps.desired("a1") == []

    async def test_desired_states_follow_the_run(self, store: Store) -> None:
        """R2, A8: a pause, a continuation and an end change the desired state immediately."""
        (one, _) = await placed(store, "a1", "a2")
        seen = []
        for to in (None, RunState.PAUSED, RunState.RUNNING, RunState.FAILED, RunState.CANCELLED):
            if to is not None:
                await store.runs.move("run", to, "", NOW)
            (wish,) = await store.apps.desired("a1")
            assert (wish.instance.no, wish.app.spec) == (one.no, SPEC)
            assert wish.app.secrets == {"KEY": "name"}
            seen.append(str(wish.state))
        assert seen == ["running", "paused", "running", "stopped", "stopped"]
        await store.apps.report("a1", [told(one, "stopped")], NOW)
        assert await store.apps.desired("a1") == []
        assert len(await store.apps.desired("a2")) == 1

    async def test_one_instance_is_stopped_and_restarted(self, store: Store) -> None:
        (one, two) = await placed(store, "a1", "")
        await store.apps.report("a1", [told(one, "running", starts=1)], NOW)
        live = await store.apps.restart("run", 0, NOW)
        assert (live.round, live.token, live.state) == (1, 1, "running"), "its agent starts it anew"
        late = told(one, "done", round=0)
        assert await store.apps.report("a1", [late], NOW) == 0
        assert (await one_of(store)).state == "running", "what an older round did is over"
        halted = await store.apps.stop("run", 0, NOW)
        assert (halted.halted, halted.state) == (True, "running")
        assert [wish.state for wish in await store.apps.desired("a1")] == ["stopped"]
        await store.apps.report("a1", [told(one, "stopped", round=1, starts=2)], NOW)
        again = await store.apps.restart("run", 0, NOW + 5)
        assert (again.agent, again.token, again.round, again.state) == ("", 2, 2, "waiting")
        assert not again.halted
        assert (await store.apps.stop("run", 1, NOW)).state == "stopped", "no agent has it"
        assert not await store.apps.place(two, "a3", "", NOW), "it has ended"
        with pytest.raises(NotFound):
            await store.apps.restart("run", 7, NOW)
        await store.runs.move("run", RunState.PAUSED, "", NOW)
        with pytest.raises(Conflict):
            await store.apps.restart("run", 0, NOW)

    async def test_a_center_ends_instances_without_an_agent(self, store: Store) -> None:
        (one,) = await placed(store)
        assert await store.apps.end(one, InstanceState.FAILED, "its agent was lost", NOW + 1)
        assert not await store.apps.end(one, InstanceState.STOPPED, "", NOW + 2)
        now = await one_of(store)
        assert (now.state, now.reason, now.changed_at) == ("failed", "its agent was lost", NOW + 1)


class AppLogPromises:
    async def test_a_piece_that_comes_twice_is_kept_once(self, store: Store) -> None:
        """A8: offsets tell new bytes; a gap is requested again."""
        await placed(store)
        assert await store.apps.add_log("a1", piece(0, b"one "), ROOM, NOW) == 4
        assert await store.apps.add_log("a1", piece(0, b"one "), ROOM, NOW) == 4
        assert await store.apps.add_log("a1", piece(2, b"e two "), ROOM, NOW) == 8
        assert await store.apps.add_log("a1", piece(20, b"far"), ROOM, NOW) == 8, "a gap"
        assert await store.apps.add_log("a1", piece(8, b"\xff\0three"), ROOM, NOW) == 15
        part = await store.apps.read_log("run", 0, 0, ROOM)
        assert (part.start, part.data, part.log_end) == (0, b"one two \xff\0three", 15)
        assert (await store.apps.read_log("run", 0, 4, 3)).data == b"two"
        assert (await store.apps.read_log("run", 0, -5, 100)).data == b"three"
        assert (await store.apps.read_log("run", 0, 99, 100)).data == b""
        with pytest.raises(NotFound):
            await store.apps.read_log("run", 3, 0, 10)

    async def test_what_an_agent_dropped_is_counted(self, store: Store) -> None:
        (one,) = await placed(store)
        await store.apps.add_log("a1", piece(0, b"begin\n"), ROOM, NOW)
        assert await store.apps.add_log("a1", piece(106, b"end\n", dropped=100), ROOM, NOW) == 110
        assert await store.apps.add_log("a1", piece(106, b"end\n", dropped=100), ROOM, NOW) == 110
        part = await store.apps.read_log("run", 0, 0, ROOM)
        said = b"begin\n[100 bytes of log were dropped by agent a1]\nend\n"
        assert (part.data, part.lost) == (said, 100)
        await store.apps.place(one, "a2", "", NOW)
        assert await store.apps.add_log("a2", piece(0, b"anew", token=2), ROOM, NOW) == 4
        assert (await store.apps.read_log("run", 0, 0, ROOM)).data == said + b"anew"

    async def test_the_oldest_bytes_go_first(self, store: Store) -> None:
        """Limited in size, and the offset of the rest counts the deleted bytes."""
        await placed(store)
        limit, size = 100_000, 30_000
        for number in range(10):
            data = bytes([65 + number]) * size
            await store.apps.add_log("a1", piece(number * size, data), limit, NOW)
        part = await store.apps.read_log("run", 0, 0, 10**6)
        assert (part.log_end, part.start) == (10 * size, part.log_start)
        assert limit <= len(part.data) < limit + size, "whole pieces"
        assert part.data.endswith(b"J" * size)
        assert part.start == part.log_end - len(part.data)
        assert (await one_of(store)).log_start == part.start

    async def test_many_short_lines_are_read_as_one(self, store: Store, other_store: Store) -> None:
        await placed(store)
        whole = b"".join(b"line %d\n" % n for n in range(3000))
        offset = 0
        for center in (store, other_store) * 15:
            offset = await center.apps.add_log(
                "a1", piece(offset, whole[offset : offset + 901]), ROOM, NOW
            )
        assert offset == len(whole[: 901 * 30])
        part = await store.apps.read_log("run", 0, 0, ROOM)
        assert part.data == whole[: 901 * 30]

    async def test_logs_of_an_ended_run_are_forgotten(self, store: Store) -> None:
        """With the logs of the run, in batches; the total size stays known."""
        await placed(store, "a1", "a2")
        for no, agent in enumerate(("a1", "a2")):
            for number in range(3):
                data = LogPiece("run", no, 1, number * 20_000, b"x" * 20_000)
                await store.apps.add_log(agent, data, ROOM, NOW)
        await store.runs.move("run", RunState.FINISHED, "", NOW)
        (ended,) = await store.retention.ended("logs", NOW + 1, (0.0, 0), 10)
        assert ended.volume == 120_000
        assert await store.retention.volumes("logs") == {"job": 120_000}
        assert await store.retention.forget("logs", ended.no, NOW, 4) == (4, False)
        assert (await store.apps.read_log("run", 1, 0, ROOM)).start == 20_000
        assert await store.retention.forget("logs", ended.no, NOW, 4) == (2, False)
        assert await store.retention.forget("logs", ended.no, NOW, 4) == (0, True)
        part = await store.apps.read_log("run", 0, 0, ROOM)
        assert (part.data, part.log_start, part.log_end) == (b"", 60_000, 60_000)


class PackagePromises:
    PACKAGE = Package("f" * 64, "wheel", "app-1-py3-none-any.whl", 7)

    async def test_a_package_comes_in_chunks(self, store: Store, other_store: Store) -> None:
        """Any center sends a package that another center packed; an upload can be continued."""
        digest = self.PACKAGE.digest
        with pytest.raises(NotFound):
            await store.packages.add(digest, 0, b"x")
        assert not await store.packages.begin(self.PACKAGE, NOW)
        await store.packages.add(digest, 0, b"\0one")
        assert not await store.packages.finish(digest), "bytes are missing"
        with pytest.raises(NotFound):
            await other_store.packages.get(digest)
        assert not await other_store.packages.begin(self.PACKAGE, NOW)
        await other_store.packages.add(digest, 0, b"\0one")
        await other_store.packages.add(digest, 1, b"two")
        assert await other_store.packages.finish(digest)
        assert await store.packages.begin(self.PACKAGE, NOW + 1), "it is here"
        assert await store.packages.get(digest) == self.PACKAGE
        parts = [await store.packages.chunk(digest, n) for n in range(3)]
        assert parts == [b"\0one", b"two", b""]

    async def test_packages_without_a_run_are_deleted(self, store: Store) -> None:
        for digest, run in ((SPEC.package, "run"), ("e" * 64, "")):
            package = replace(self.PACKAGE, digest=digest, size=2)
            await store.packages.begin(package, NOW)
            for n in range(2):
                await store.packages.add(digest, n, b"x")
            assert await store.packages.finish(digest)
            if run:
                await placed(store, run=run)
        assert await store.packages.wanted_by(SPEC.package, "a1")
        assert not await store.packages.wanted_by(SPEC.package, "a2")
        assert await store.packages.forget(NOW, 100) == 0, "too young"
        assert await store.packages.forget(NOW + DAY, 1) == 1, "some at a time"
        with pytest.raises(NotFound):
            await store.packages.get("e" * 64)
        assert await store.packages.forget(NOW + DAY, 100) == 1
        assert (await store.packages.get(SPEC.package)).size == 2, "its run goes on"
        await store.runs.move("run", RunState.CANCELLED, "", NOW)
        assert await store.packages.forget(NOW + DAY, 100) == 2
        assert await store.packages.forget(NOW + DAY, 100) == 0
