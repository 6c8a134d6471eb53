"""What was lost, from three sources: the rows, the site's hits, the client's file.

Reads the database with its own driver, without any of our code.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from urllib.parse import urlsplit

from bench.figures import check
from bench.kill.fleet import Fleet
from skep.testing.site_pages import Pages

DONE = 4
QUERY = "SELECT id, uri, state FROM requests"
BODIES = 30


@dataclass(frozen=True, slots=True)
class Evidence:
    """Counted after everything has ended."""

    accepted: int
    lost: int
    never_done: int
    never_hit: int
    unaccounted: int
    repeated: int
    bodies_checked: int


@dataclass(frozen=True, slots=True)
class Sampling:
    """The archived bodies that are compared with the site's pages."""

    pages: int
    rng: Random


def gather(
    fleet: Fleet,
    store_url: str,
    promised: Sequence[str],
    hits: dict[str, int],
    sampling: Sampling,
) -> Evidence:
    rows = read_rows(store_url)
    done = {uri for _, uri, state in rows if state == DONE}
    never_done = {uri for uri in promised if uri not in done}
    never_hit = {uri for uri in promised if not hits.get(urlsplit(uri).path)}
    audit = fleet.ledger(audit=True) or {}
    check(len(rows), audit.get("accepted"), "rows and the audited ledger")
    unaccounted = abs(audit["unaccounted"])
    finished = [(number, uri) for number, uri, state in rows if state == DONE]
    checked = check_bodies(fleet, finished, sampling)
    return Evidence(
        accepted=len(promised),
        lost=len(never_done | never_hit) + unaccounted,
        never_done=len(never_done),
        never_hit=len(never_hit),
        unaccounted=unaccounted,
        repeated=sum(hits.values()) - len(hits),
        bodies_checked=checked,
    )


def read_rows(store_url: str) -> list[tuple[int, str, int]]:
    """(id, uri, state) of every request."""
    if store_url.startswith("sqlite"):
        line = sqlite3.connect(store_url.removeprefix("sqlite:///"))
        try:
            return line.execute(QUERY).fetchall()
        finally:
            line.close()
    import psycopg

    with psycopg.connect(store_url) as database:
        return database.execute(QUERY).fetchall()


def check_bodies(fleet: Fleet, finished: Sequence[tuple[int, str]], sampling: Sampling) -> int:
    """Compare archived bodies with the pages of the site."""
    content = Pages(sampling.pages)
    some = sampling.rng.sample(finished, min(BODIES, len(finished)))
    for number, uri in some:
        kept = fleet.door.raw(f"/api/v1/requests/{number}/body")
        page = int(urlsplit(uri).path.rpartition("/")[2])
        check(content.page(page).encode(), kept, f"the archived body of {uri}")
    return len(some)
