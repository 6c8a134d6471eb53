"""Two sets of objects with different labels, for tests of what a caller with a scope sees.

Each world has an agent, a job, runs with a page, an item, a dead and an open request, log lines,
an operation and a saved view. Every name in it contains the name of the world.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from skep.logs.line_format import encode_entry, make_entry
from skep.model.fleet.agent import Registration
from skep.model.logs import LogBatch, LogSource, LogSourceKind
from skep.testing.grounds.centers import RunningCenter, archived
from skep.wire import messages

_LOGGED_AT = 1_700_000_000.0


@dataclass
class World:
    """Names and numbers of the objects with one label."""

    name: str
    team: str
    #: Path parameters of the API with objects of this world.
    paths: dict[str, str] = field(default_factory=dict)

    @property
    def labels(self) -> dict[str, str]:
        return {"team": self.team}


async def build_world(center: RunningCenter, name: str, team: str) -> World:
    """All objects of one world, made by an admin."""
    world = World(name, team)
    await _agent(center, world)
    await _job(center, world)
    requests = await _run(center, world)
    await _item(center, world, requests["done"])
    await _logs(center, world)
    failed = (await center.admin.get(f"/api/v1/failures?run={name}")).json()["items"]
    page = (await center.admin.get(f"/api/v1/requests/{requests['done']}")).json()
    await center.admin.put(
        f"/api/v1/views/{name}", {"resource": "runs", "filter": f"id:{name}", "shared": True}
    )
    world.paths = {
        **dict.fromkeys(("agent", "identity", "job", "run", "view"), name),
        "host": f"{name}.test",
        "request": str(requests["done"]),
        "block": str(page["request"]["block"]),
        "group": failed[0]["group"],
        "operation": str(await _operation(center, world)),
        "no": "0",
    }
    return world


async def _agent(center: RunningCenter, world: World) -> None:
    about = Registration(world.name, "same name", labels=world.labels)
    await center.agent.packed("/node/register", messages.Register(about))


async def _job(center: RunningCenter, world: World) -> None:
    job = {
        "requests": [f"http://{world.name}.test/job"],
        "labels": world.labels,
        "schedule": {"cron": "0 4 * * *"},
    }
    assert (await center.admin.put(f"/api/v1/jobs/{world.name}", job)).status == 200


async def _run(center: RunningCenter, world: World) -> dict[str, int]:
    """The numbers of its requests by state."""
    name, admin = world.name, center.admin
    body = {"job": name, "labels": world.labels, "settings": {"block_size": 1, "retries": 0}}
    assert (await admin.put(f"/api/v1/runs/{name}", body)).status == 200
    hand = center.hand_agent(name)
    for state in ("done", "dead"):
        await center.put(name, [{"uri": f"http://{name}.test/{state}"}])
        await center.dispatched()
        (block,) = await hand.lease(want=1, wait=10.0)
        if state == "done":
            assert await hand.report(archived(block)[0]) == ["stored"]
        else:
            await hand.finish(block, "network", 0)
    await admin.post(f"/api/v1/runs/{name}/pause")
    await center.put(name, [{"uri": f"http://{name}.test/open"}])
    listed = (await admin.get(f"/api/v1/requests?filter=run:{name}")).json()["items"]
    return {one["state"]: one["id"] for one in listed}


async def _item(center: RunningCenter, world: World, request: int) -> None:
    path = f"/requestqueue/{world.name}"
    driving = (await center.admin.post(f"{path}/driver", {"labels": world.labels})).json()
    found = [request, 0, {"found": world.name}]
    turn = {"driver": driving["driver"], "items": [found]}
    assert (await center.admin.post(f"{path}/turn", turn)).status == 200


async def _logs(center: RunningCenter, world: World) -> None:
    name = world.name
    sources = (
        LogSource(LogSourceKind.AGENT, name, "", name),
        LogSource(LogSourceKind.APP, f"{name}/0", name, name),
    )
    line = encode_entry(make_entry(_LOGGED_AT, 20, f"a line of {name}"))
    batches = [LogBatch(source, 1, 0, line) for source in sources]
    answer = await center.agent.packed("/node/logs", messages.LogLines(name, batches))
    assert answer.status == 200, answer.content


async def _operation(center: RunningCenter, world: World) -> int:
    """One that changes nothing: the job is enabled already."""
    asked = {
        "resource": "jobs",
        "act": "enable",
        "filter": f"label:team={world.team} name:{world.name}",
        "dry_run": False,
    }
    return int((await center.admin.post("/api/v1/operations", asked)).json()["operation"]["id"])


async def state_of(center: RunningCenter, world: World) -> Mapping[str, Any]:
    """What a change by another caller would change."""
    paths, admin = world.paths, center.admin
    run = (await admin.get(f"/api/v1/runs/{world.name}")).json()
    job = (await admin.get(f"/api/v1/jobs/{world.name}")).json()
    agent = (await admin.get(f"/api/v1/agents/{world.name}")).json()["agent"]
    operation = (await admin.get(f"/api/v1/operations/{paths['operation']}")).json()
    group = await admin.get(f"/api/v1/failure-groups/{paths['group']}")
    return {
        "run": (run["run"]["state"], run["run"]["reason"], run["ledger"]),
        "job": (job["kept"]["revision"], job["kept"]["deleted"], len(job["runs"])),
        "agent": (agent["enabled"], agent["aside"], agent["registration"]["labels"]),
        "operation": operation["filter"],
        "group": group.json()["group"]["state"] if group.status == 200 else "",
    }
