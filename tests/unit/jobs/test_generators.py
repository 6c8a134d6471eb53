"""Parts of generators: sitemaps as they are read inside a box, names, rows of queries."""

from __future__ import annotations

import gzip
from decimal import Decimal

import pytest

from skep.downloaders.code.inside.generate import plain
from skep.downloaders.code.inside.sitemap import entries
from skep.errors import InvalidInput
from skep.jobs.generators.generator_contract import Complaint, request_of, settled
from skep.jobs.generators.generator_feed import chosen_of
from skep.jobs.generators.sql_source import _request, check_sql
from skep.model.jobs.generator_progress import (
    Generation,
    fire_key_of,
    generator_of,
    part_of,
    split_part,
)
from skep.model.jobs.job import Generator, Job
from skep.model.request import NewRequest

URLSET = '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{}</urlset>'


def test_what_sitemaps_hold() -> None:
    """Fault 59: pages and further sitemaps, gzipped or not; entities are not expanded."""
    urls = "".join(f"<url><loc> /p/{n} </loc></url>" for n in range(3))
    whole = URLSET.format(urls).encode()
    pages = [f"http://a/p/{n}" for n in range(3)]
    assert list(entries(whole, "http://a/map.xml")) == pages
    assert list(entries(gzip.compress(whole), "http://a/")) == pages
    index = b"<sitemapindex><sitemap><loc>http://b/2.xml</loc></sitemap></sitemapindex>"
    assert list(entries(index, "http://a/")) == [{"sitemap": "http://b/2.xml"}]
    robots = b"User-agent: *\nSitemap: http://a/map.xml\n"
    assert list(entries(robots, "http://a/robots.txt")) == [{"sitemap": "http://a/map.xml"}]
    assert list(entries(b"http://a/1\nhttp://a/2\nnonsense\n", "http://a/")) == [
        "http://a/1",
        "http://a/2",
    ]
    assert list(entries(URLSET.format("<loc>http://a/</loc>").encode(), "http://a/")) == []
    bomb = b'<!DOCTYPE x [<!ENTITY a "aaaa">]><urlset><url><loc>http://a/&a;</loc></url></urlset>'
    with pytest.raises(ValueError, match="declares entities"):
        list(entries(bomb, "http://a/"))


def test_a_broken_sitemap_gives_what_could_be_read() -> None:
    found = entries(b"<urlset><url><loc>http://a/1</loc></url><url><lo", "http://a/")
    assert next(found) == "http://a/1"
    with pytest.raises(ValueError, match="not XML"):
        next(found)


def test_names_of_generators_in_schedules_and_keys() -> None:
    assert split_part(part_of("job", "daily")) == ("job", "daily")
    assert split_part("job") == ("job", "")
    assert generator_of(fire_key_of("daily", "2026-11-16T04:50:00Z")) == "daily"
    assert generator_of("2026-11-16T04:50:00Z") == generator_of("key generator x") == ""


def test_which_generators_a_run_has() -> None:
    """Those with a cron line run by themselves, unless nothing else would."""
    plain_one = Generator("list", "plain")
    timed = Generator("list", "timed", cron="* * * * *")
    both = Job("j", generators=(timed, plain_one))
    assert chosen_of("once x", both) == [(1, plain_one)]
    assert chosen_of("generator timed x", both) == [(0, timed)]
    assert chosen_of("once x", Job("j", generators=(timed,))) == [(0, timed)]
    assert chosen_of("once x", Job("j", requests=("http://a/",), generators=(timed,))) == []


def test_what_is_known_follows_from_the_other_figures() -> None:
    assert Generation("r", 0, "g", "list", yielded=10, taken=6, bad=1).known == 3
    assert Generation("r", 0, "g", "list", yielded=1, taken=6).known == 0


def test_raw_items_become_requests() -> None:
    assert request_of("http://a/") == "http://a/"
    assert request_of('{"uri": "http://a/", "priority": 1}') == NewRequest("http://a/", priority=1)
    assert request_of({"uri": "http://a/", "body": b"x"}) == NewRequest("http://a/", body=b"x")
    for bad in ('{"uri": 1}', {"uri": "http://a/", "colour": "red"}, Complaint("so it is")):
        with pytest.raises(InvalidInput):
            request_of(bad)


def test_again_is_the_same_request_when_the_generator_begins_again() -> None:
    asked = NewRequest("http://a/", again=True)
    first, second = (settled(asked, Generator("list"), 2, n) for n in (5, 6))
    assert isinstance(first, NewRequest)
    assert first == settled(asked, Generator("list"), 2, 5) != second
    assert (first.again, bool(first.fingerprint)) == (False, True)


def test_the_generators_priority_is_for_those_without_one() -> None:
    generator = Generator("list", priority=0)
    assert settled("http://a/", generator, 0, 0) == NewRequest("http://a/", priority=0)
    own = NewRequest("http://a/", priority=3)
    assert settled(own, generator, 0, 0) == own


def test_columns_become_fields_or_meta() -> None:
    assert _request(["page"], ["http://a/"]) == "http://a/"
    columns = ["id", "uri", "method", "price", "none"]
    found = _request(columns, [7, "http://a/", "PUT", Decimal("1.5"), None])
    meta = {"id": 7, "price": "1.5"}
    assert found == {"uri": "http://a/", "method": "PUT", "meta": meta}


@pytest.mark.parametrize(
    ("url", "query", "told"),
    [
        ("sqlite:///x.db", "DELETE FROM x", "must begin with SELECT"),
        ("sqlite:///x.db", "-- SELECT\nDROP TABLE x", "must begin with SELECT"),
        ("postgresql://u:secret@h/d", "SELECT 1", "must not contain a password"),
        ("oracle://h/d", "SELECT 1", "is not supported; use"),
        ("env:SKEP_STORE_URL", "SELECT 1", "reserved for the center"),
        ("nonsense", "SELECT 1", "not the URL of a database"),
    ],
)
def test_queries_that_are_refused(url: str, query: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        check_sql(Generator("sql", url=url, query=query))


def test_queries_that_are_taken() -> None:
    for query in ("select 1", "/* a */ -- b\n WITH x AS (SELECT 1) SELECT * FROM x"):
        check_sql(Generator("sql", url="env:SHOP_URL", query=query))


class Lookalike:
    url = "http://a/"
    method = "POST"
    body = "a=b"
    priority = 0
    headers = None


def test_requests_of_other_libraries_are_understood() -> None:
    assert plain(Lookalike()) == {
        "uri": "http://a/", "method": "POST", "body": b"a=b", "priority": 0
    }  # fmt: skip
    with pytest.raises(TypeError, match="must yield URIs"):
        plain(7)
