"""The checks of `skep doctor`, one function each. None of them changes anything."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from skep.embed.center_address import CenterAddress
from skep.embed.checks.finding import Finding
from skep.errors import Malformed, NotFound, SkepError
from skep.runtime.clock import SystemClock
from skep.settings import Settings

if TYPE_CHECKING:
    from skep.wire.api.center import RepairLine
    from skep.wire.api.health import Ready
    from skep.wire.api.monitoring.logs import LogBudgets
    from skep.wire.client import CenterClient

OLDEST_PYTHON = (3, 11)
DISK_FLOOR = 512 * 2**20
SKEW_LIMIT = 5.0
TOKENS = ("admin.token", "agent.token")
#: Enough for the first record of a segment.
FIRST_BYTES = 65536
#: Attempts to compare two counts, which differ for a moment while requests move.
LOOKS = 5

_FIXES = {
    "store": "start the database that store.url names, or fix store.url",
    "bus": "start the Redis that bus.url names, or fix bus.url",
    "archive": "make the folder or bucket of archive.url readable and writable for the center",
    "disk": "free space in the center's data folder",
}


async def examine(reach: CenterAddress) -> list[Finding]:
    """All checks that are possible from here."""
    from skep.embed.checks.container_engines import container_engines
    from skep.embed.checks.network import network
    from skep.embed.checks.user_code import user_code

    findings = [python(), *_local(reach)]
    findings.append(await asyncio.to_thread(user_code, reach.settings().agent))
    findings += await asyncio.to_thread(container_engines, reach.settings().agent)
    findings += await asyncio.to_thread(network)
    try:
        async with reach.client() as client:
            findings += await _center(client)
    except SkepError as error:
        findings.append(Finding("center", False, error.detail, _start(findings)))
    findings += await archive(reach.settings())
    return [finding if not finding.ok else _well(finding) for finding in findings]


def _start(findings: list[Finding]) -> str:
    """A center cannot start on a damaged store: that comes first."""
    wrong = any(finding.name == "store" and not finding.ok for finding in findings)
    return "fix the store first, then start it" if wrong else "start one with `skep up`"


def _well(finding: Finding) -> Finding:
    return Finding(finding.name, True, finding.detail)


def _local(reach: CenterAddress) -> list[Finding]:
    """The folder matters when the center runs here, or when the folder exists."""
    folder = Path(reach.settings().data)
    if reach.center is not None and not folder.exists():
        return []
    from skep.embed.checks.store_file import store_file

    return [data_folder(folder), *token_files(folder), *store_file(reach.settings())]


def python(version: tuple[int, ...] = tuple(sys.version_info[:3])) -> Finding:
    shown = ".".join(str(part) for part in version)
    needed = ".".join(str(part) for part in OLDEST_PYTHON)
    return Finding("python", version >= OLDEST_PYTHON, shown, f"install Python {needed} or newer")


def data_folder(folder: Path) -> Finding:
    """Whether it is writable and has free space."""
    if not folder.is_dir():
        return Finding("data folder", False, f"{folder} does not exist", "start with `skep up`")
    if not os.access(folder, os.W_OK | os.X_OK):
        return Finding("data folder", False, f"{folder} is not writable", f"chmod u+rwx {folder}")
    free = shutil.disk_usage(folder).free
    detail = f"{folder}, {free // 2**20} MiB free"
    return Finding("data folder", free >= DISK_FLOOR, detail, "free space on its disk")


def token_files(folder: Path) -> Iterator[Finding]:
    """Only its owner may read a token."""
    for path in (folder / name for name in TOKENS):
        if path.exists():
            mode = path.stat().st_mode & 0o777
            yield Finding(path.name, not mode & 0o077, f"mode {mode:o}", f"chmod 600 {path}")


async def _center(client: CenterClient) -> list[Finding]:
    version = await client.api.health.version()
    here = f"{client.address} answers, version {version.version}"
    findings = [Finding("center", True, here)]
    for check in (_ready, _ledger, _self_check, _logs, _clock):
        try:
            findings += await check(client)
        except SkepError as error:
            name = check.__name__.strip("_")
            findings.append(Finding(name, False, error.detail, "see the line above"))
    return findings


async def _ready(client: CenterClient) -> list[Finding]:
    from skep.wire.api.health import Verbose

    return readiness(await client.api.health.ready(Verbose("")))


def readiness(answer: Ready) -> list[Finding]:
    """The center's own checks, each with a fix."""
    return [
        Finding(f"center's {check.name}", check.ok, check.detail, _FIXES[check.name])
        for check in answer.checks
        if check.name in _FIXES
    ]


async def _ledger(client: CenterClient) -> list[Finding]:
    """Compares the running counts with a count of all rows."""
    from skep.wire.api.center import WhichLedger

    fix = "this is a bug; please report it with the output of `skep info --json`"
    api = client.api.center
    for _ in range(LOOKS):
        running = await api.ledger()
        audit = await api.ledger(WhichLedger(audit=True))
        wrong = running.unaccounted or audit.unaccounted
        if wrong or running.ledger == audit.ledger:
            return [Finding("ledger", not wrong, audit.line, fix)]
    after = await api.ledger()
    moving = after.ledger != running.ledger
    detail = "requests change too fast to compare" if moving else "running counts and rows differ"
    return [Finding("ledger", moving, detail, fix)]


async def _self_check(client: CenterClient) -> list[Finding]:
    """Differences between the center's records, and repairs."""
    try:
        answer = await client.api.center.repairs()
    except NotFound:  # an older center
        return []
    return [self_check(answer.items)]


def self_check(lines: Sequence[RepairLine]) -> Finding:
    """Only open differences are a problem, not repaired ones."""
    fix = "check again in a minute; if it persists, report it with the output of `skep info --json`"
    open_ = [f"{line.kind}: {line.open}" for line in lines if line.open]
    done = [f"{line.kind}: {line.repaired}" for line in lines if line.repaired]
    found = f"differences: {', '.join(open_) or 'none'}"
    repaired = f"; repaired since the start: {', '.join(done)}" if done else ""
    return Finding("self-check", not open_, found + repaired, fix)


async def _logs(client: CenterClient) -> list[Finding]:
    try:
        return [log_lines(await client.api.logs.budgets())]
    except NotFound:  # an older center
        return []


def log_lines(found: LogBudgets) -> Finding:
    """Stored log lines, and lines that were lost."""
    dropped = found.dropped + sum(found.agent_drops.values())
    detail = f"{found.bytes:,} of {found.bytes_limit:,} bytes, {dropped:,} lines dropped"
    fix = "see who writes so much with `skep logs --budgets`, or raise the limits of `logs`"
    return Finding("logs", not dropped, detail, fix, warning=True)


async def _clock(client: CenterClient) -> list[Finding]:
    """Compares the clocks, by the age of heartbeats, the only time that the center shows."""
    lines = (await client.api.agents.list()).items
    if not lines:
        return []
    skew = lines[0].agent.seen_at + lines[0].last_beat_age - SystemClock().now()
    detail = f"{abs(skew):.1f} s between here and the center"
    return [Finding("clock", abs(skew) < SKEW_LIMIT, detail, "set the clocks, for example by NTP")]


async def archive(settings: Settings) -> list[Finding]:
    """Checks the archive in this machine's settings, from here."""
    from skep.archive.registry import folder_of, is_s3, login_of, open_bucket

    try:
        if not is_s3(settings.archive_url):
            return [*newest_segment(folder_of(settings.archive_url))]
        bucket = open_bucket(settings.archive_url, login_of(settings))
        found = await bucket.list()
    except SkepError as error:
        fix = "fix archive.url and archive.secret, or the permissions of these credentials"
        return [Finding("archive", False, error.detail, fix)]
    return [Finding("archive", True, f"{bucket.place} is available: {len(found)} objects")]


def newest_segment(folder: Path) -> Iterator[Finding]:
    """Checks that the newest segment of an archive on this machine can be read."""
    segments = [*folder.glob("*.warc.zst")] if folder.is_dir() else []
    if not segments:
        return
    newest = max(segments, key=lambda path: path.stat().st_mtime)
    try:
        detail, ok = f"{newest.name} starts with a {_first_record(newest)} record", True
    except (OSError, SkepError) as error:
        detail, ok = f"{newest.name}: {error}", False
    yield Finding(
        "archive", ok, detail, f"inspect {newest}; do not delete it, and report the problem"
    )


def _first_record(path: Path) -> str:
    from skep.archive.frame_boundaries import frame_end
    from skep.archive.records import read_records

    with path.open("rb") as file:
        data = file.read(FIRST_BYTES)
    records = read_records(data[: frame_end(data)])
    if not records:
        raise Malformed("it has no record")
    return records[0].type
