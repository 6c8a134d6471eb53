"""Job documents: what is taken, what is refused, and that every fault is told with its path."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from skep.errors import InvalidInput, InvalidJob
from skep.jobs.definitions.job_check import Checker, linter
from skep.jobs.definitions.masked_jobs import hidden
from skep.jobs.request_validation import Validator
from skep.model.jobs.documents import difference, read_documents, write_document
from skep.model.jobs.job import Job, bytes_of, job_of
from skep.model.run import RunSettings

EXAMPLES = Path(__file__).parents[3] / "examples"
GOOD: dict[str, Any] = {"name": "quotes", "requests": ["http://example.org/"]}
PYTHON = "def run(uri):\n    return b''\n"


def faults(**fields: Any) -> dict[str, str]:
    """path -> message of a good document with these fields changed."""
    document = {name: value for name, value in {**GOOD, **fields}.items() if value != "absent"}
    job, found = linter().judge(document)
    assert (job is None) == bool(found)
    return {fault.path: fault.message for fault in found}


def good(**fields: Any) -> Job:
    return linter().check({**GOOD, **fields})


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no name": ({"name": "absent"}, "name"),
    "a name with a space": ({"name": "a b"}, "name"),
    "a name with a newline": ({"name": "a\n"}, "name"),
    "a name that is too long": ({"name": "a" * 47}, "name"),
    "a priority that is none": ({"priority": 6}, "priority"),
    "a misspelt field": ({"shedule": {}}, "shedule"),
    "a misspelt setting": ({"settings": {"retrys": 1}}, "settings.retrys"),
    "a setting out of range": ({"settings": {"retries": -1}}, "settings.retries"),
    "a setting of the wrong kind": ({"settings": {"block_size": "x"}}, "settings.block_size"),
    "a priority among settings": ({"settings": {"priority": 1}}, "settings.priority"),
    "a header in two lines": ({"settings": {"headers": {"A": "b\r\nC: d"}}}, "settings.headers"),
    "a cookie in two lines": ({"settings": {"cookie": "a\nb"}}, "settings.headers"),
    "settings that are none": ({"settings": 3}, "settings"),
    "an unknown kind": ({"downloader": "cobol"}, "downloader.kind"),
    "a kind that no center has (E11)": ({"downloader": "git"}, "downloader.kind"),
    "a scheme that no center has (E11)": ({"requests": ["ftp://example.org/"]}, "requests[0]"),
    "python without code": ({"downloader": "python"}, "downloader.code"),
    "python that is none": (
        {"downloader": {"kind": "python", "code": "def run(:"}},
        "downloader.code",
    ),
    "shell that is none": ({"downloader": {"kind": "shell", "code": "if"}}, "downloader.code"),
    "http with code": ({"downloader": {"kind": "http", "code": PYTHON}}, "downloader.code"),
    "an unsafe option of curl": (
        {"downloader": {"kind": "curl", "options": ["-o", "x"]}},
        "settings",
    ),
    "a request that is not a URL": ({"requests": ["http://a/", "nonsense"]}, "requests[1]"),
    "a request with a misspelt field": ({"requests": [{"url": "http://a/"}]}, "requests[0].url"),
    "an unknown generator": ({"generators": [{"kind": "magic"}]}, "generators[0].kind"),
    "a list without entries": ({"generators": [{"kind": "list"}]}, "generators[0].uris"),
    "a generator's cron line": (
        {"generators": [{"kind": "shell", "code": "echo", "cron": "61 * * * *"}]},
        "generators[0].cron",
    ),
    "a generator's code": (
        {"generators": [{"kind": "python", "code": "for"}]},
        "generators[0].code",
    ),
    "nothing to do": ({"requests": []}, "requests"),
    "a spider and requests": ({"spider": "a.b:C"}, "spider"),
    "a spider of no form": ({"requests": "absent", "spider": "a b"}, "spider.path"),
    "an absolute spider": ({"requests": "absent", "spider": "/etc/x.py"}, "spider.path"),
    "an argument that is not a name": (
        {"requests": "absent", "spider": {"path": "a.b:C", "arguments": {"x-y": 1}}},
        "spider.arguments.x-y",
    ),
    "a cron line": ({"schedule": "61 * * * *"}, "schedule.cron"),
    "a time zone": ({"schedule": {"cron": "0 3 * * *", "zone": "Mars/X"}}, "schedule.zone"),
    "a strategy": ({"placement": {"strategy": "best"}}, "placement.strategy"),
    "no agents": ({"placement": {"strategy": "fixed", "n": 0}}, "placement.n"),
    "a sink": ({"sinks": ["tape:x"]}, "sinks[0]"),
    "a file anywhere": ({"sinks": ["jsonl:/etc/passwd.jsonl"]}, "sinks[0]"),
    "a file further up": ({"sinks": ["csv:a/../../b.csv"]}, "sinks[0]"),
    "a database anywhere": ({"sinks": ["sqlite:///var/x.db?table=t"]}, "sinks[0]"),
    "an option of a sink": ({"sinks": ["jsonl:x?color=red"]}, "sinks[0]"),
    "enabled that is neither": ({"enabled": "maybe"}, "enabled"),
}


#: A job of a spider instead of requests.
CRAWL: dict[str, Any] = {"requests": [], "spider": "package.module:Crawl"}


@pytest.mark.parametrize("what", WRONG)
def test_it_is_refused_and_its_path_is_told(what: str) -> None:
    """D1: schema, Python and shell syntax, cron line, unknown kinds."""
    fields, path = WRONG[what]
    found = faults(**fields)
    assert path in found, found
    assert found[path]


def test_every_fault_is_told_at_once() -> None:
    """D1: one check is enough to fix a document."""
    everything: dict[str, Any] = {"requests": ["http://a/", "b", "c"]}
    everything |= {"settings": {"retries": -1, "time_limit": 0, "nope": 1}, "note": 3}
    everything |= {"downloader": {"kind": "python", "code": "("}, "schedule": {"cron": "x"}}
    found = faults(**everything)
    assert found.keys() == {
        "note",
        "requests[1]",
        "requests[2]",
        "settings.retries",
        "settings.time_limit",
        "settings.nope",
        "downloader.code",
        "schedule.cron",
    }
    with pytest.raises(InvalidJob) as refused:
        linter().check({**GOOD, **everything})
    assert refused.value.detail.count("\n") == len(found) - 1


@pytest.mark.parametrize("document", [None, 3, "text", [], [GOOD]])
def test_a_document_that_is_not_a_mapping(document: Any) -> None:
    with pytest.raises(InvalidJob, match="mapping"):
        linter().check(document)


def test_a_misspelt_field_is_offered_the_right_one() -> None:
    assert "did you mean 'schedule'?" in faults(shedule={})["shedule"]


def test_short_forms_mean_the_long_ones() -> None:
    short = good(**CRAWL, downloader="http", schedule="@daily", sinks=["jsonl:a.jsonl"])
    long = good(
        **CRAWL,
        downloader={"kind": "http"},
        schedule={"cron": "@daily"},
        sinks=[{"url": "jsonl:a.jsonl"}],
    )
    assert short == long
    assert bytes_of(short) == bytes_of(long)
    assert bytes_of(good()) == bytes_of(good(priority=5, enabled=True, settings={}, note=""))


def test_a_job_survives_the_store_and_the_editor() -> None:
    code = {"kind": "python", "code": PYTHON, "limits": {"processes": 4}}
    job = good(
        note="zwei\nZeilen: ü",
        downloader=code,
        settings={"retries": 3, "headers": {"A": "b"}, "accept_status": [404]},
        requests=["http://a/", {"uri": "http://b/", "priority": 0, "meta": {"k": [1, None]}}],
        schedule={"every": 60, "overlap": "queue"},
        placement={"strategy": "fixed", "n": 2, "labels": {"site": "köln"}},
    )
    assert job_of(bytes_of(job)) == job
    (document,) = read_documents(write_document(job), "x.yaml")
    assert linter().check(document) == job


def test_what_a_job_says_wins_over_its_spider() -> None:
    spiders = RunSettings(retries=7, robots=False, headers={"A": "spider", "B": "spider"})
    job = good(settings={"retries": 0, "headers": {"A": "job"}, "cookie": "k=v"}, priority=-1)
    merged = job.run_settings(spiders)
    assert (merged.retries, merged.robots, merged.priority) == (0, False, -1)
    assert merged.headers == {"A": "job", "B": "spider", "Cookie": "k=v"}
    proxied = good(settings={"proxy": "http://user:secret@p:1/"}).run_settings(RunSettings())
    assert proxied.exits is not None
    assert proxied.exits.proxies == ("http://user:secret@p:1/",)


def test_code_and_its_limits_travel_with_the_run() -> None:
    part = {"kind": "python", "code": PYTHON, "network": True, "limits": {"files": 99}}
    settings = good(downloader=part, settings={"memory_limit": 64}).run_settings(RunSettings())
    assert settings.code is not None
    assert (settings.downloader, settings.code.source) == ("python", PYTHON)
    assert (settings.code.limits.memory, settings.code.limits.files) == (64 * 2**20, 99)
    assert settings.code.network


def test_a_center_looks_for_the_files_of_a_job(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text("import skep\n")
    (tmp_path / "bad.py").write_text("class (:\n")
    (tmp_path / "link.py").symlink_to(EXAMPLES / "demo_pages.py")
    checker = Checker(Validator(("http",), Random(0)), ("http",), tmp_path)

    def told(spider: str) -> list[str]:
        _, found = checker.judge({"name": "j", "spider": spider})
        return [str(fault) for fault in found]

    assert told("good.py") == told("good.py:Spider") == told("package.module:Spider") == []
    assert told("bad.py")[0].startswith("spider.path: line 1: ")
    for elsewhere in ("missing.py", "../x.py", "a/../../x.py", "link.py"):
        assert told(elsewhere)[0].startswith("spider.path: cannot read "), elsewhere


def test_several_documents_in_one_file() -> None:
    assert read_documents("name: a\n---\nname: b\n---\n", "x.yaml") == [
        {"name": "a"},
        {"name": "b"},
    ]
    assert read_documents('[{"name": "a"}, {"name": "b"}]', "x.json") == [
        {"name": "a"},
        {"name": "b"},
    ]
    (document,) = read_documents("schedule:\n  exclude: [2026-12-24]\n", "x.yaml")
    assert document == {"schedule": {"exclude": ["2026-12-24"]}}, "a date stays the text it is"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "x.yaml: not YAML: line 1"),
        ("name: a\nname: b\n", "line 2: the field 'name' is repeated"),
        ("!!python/object/apply:os.system ['true']", "not YAML"),
    ],
)
def test_an_invalid_document_is_reported_with_its_line(text: str, words: str) -> None:
    """No code on loading: what others send is data."""
    with pytest.raises(InvalidInput, match=words):
        read_documents(text, "x.yaml")


def laughs(levels: int, merge: bool) -> str:
    """Each level names the one before it nine times."""
    lines = ["l0: &l0 {a: 1}"]
    for level in range(1, levels):
        names = ", ".join([f"*l{level - 1}"] * 9)
        value = f"{{<<: [{names}]}}" if merge else f"[{names}]"
        lines.append(f"l{level}: &l{level} {value}")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (laughs(10, merge=True), "aliases and merge keys repeat more than"),
        (laughs(10, merge=False), "aliases and merge keys repeat more than"),
        ("a: &a [*a]", "line 1: an alias refers to the value"),
        (f"a: 1\nb: {'1' * 200_000}", "line 2: a number has 200000 characters"),
        (f"a: {'1:' * 100_000}1", "a number has 200001 characters"),
        (f"a: {'1:' * 100_000}1.5", "a number has 200003 characters"),
        (f"a: {2**70}", "line 1: the integer does not fit into 64 bits"),
        ("a: !!int x", "does not fit its tag"),
        ("a: !!bool x", "does not fit its tag"),
        ("? [a]\n: b", "not YAML"),
        ("[" * 5000, "too deep"),
    ],
    ids=range(11),
)
def test_yaml_that_is_made_to_hang_is_refused(text: str, why: str) -> None:
    """S13: aliases that multiply and numbers without an end are told in a sentence."""
    with pytest.raises(InvalidInput, match=why):
        read_documents(text, "x.yaml")


def test_json_with_an_endless_number_is_refused() -> None:
    """S13."""
    with pytest.raises(InvalidInput, match="not JSON"):
        read_documents(f'{{"a": {"1" * 200_000}}}', "x.json")


def test_aliases_and_merge_keys_within_the_bound_are_read() -> None:
    text = "base: &base {a: 1, b: 2}\nmore: {<<: *base, b: 3}\nlist: [*base, *base]\nn: -9"
    (document,) = read_documents(text, "x.yaml")
    same = {"a": 1, "b": 2}
    assert document == {"base": same, "more": {"a": 1, "b": 3}, "list": [same, same], "n": -9}


def test_the_difference_of_two_jobs() -> None:
    before, after = good(note="old"), good(note="new")
    told = difference(before, after, ("revision 1", "revision 2"))
    assert told.startswith("--- revision 1\n+++ revision 2\n")
    assert "-note: old\n+note: new" in told
    assert difference(before, before, ("a", "b")) == ""


def nested(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = {"a": value} if level % 2 else [value]
    return value


def test_a_document_that_is_too_deep_is_refused_with_its_path() -> None:
    """S13: 400 levels were stored, and the difference of two revisions could not be made."""
    spider = {"path": "x.py", "arguments": {"deep": nested(400)}}
    (path,) = faults(spider=spider)
    assert path.startswith("spider.arguments.deep.a[0].a[0]")
    assert path.endswith("...")
    assert "64 levels" in faults(spider=spider)[path]
    generator = {"kind": "python", "code": "def generate(**more): ...", "arguments": {}}
    assert not faults(generators=[{**generator, "arguments": {"a": nested(50)}}])


def test_the_difference_of_jobs_that_were_stored_too_deep() -> None:
    """S13: stored before there was a bound; a stack of some depth is below the call."""
    part = {"kind": "python", "code": "def generate(): ...", "arguments": {"a": nested(400)}}
    before = job_of(msgspec.json.encode({**GOOD, "generators": [part]}))
    after = msgspec.structs.replace(before, priority=2)
    told = difference(before, after, ("revision 1", "revision 2")).splitlines()
    assert [line.strip() for line in told if line.startswith("+ ")] == ['+ "priority": 2,']
    assert "+ " in difference(good(), after, ("revision 1", "revision 2"))
    assert bytes_of(hidden(after))


def test_sinks_need_a_spider() -> None:
    """E6: a job without a spider has no items; its sinks are refused, not ignored."""
    assert "no spider" in faults(sinks=["jsonl:s.jsonl"])["sinks"]
    app = {"requests": [], "app": {"command": ["true"]}}
    assert "application" in faults(**app, sinks=["jsonl:s.jsonl"])["sinks"]


def test_what_is_secret_is_hidden() -> None:
    job = good(
        **CRAWL,
        settings={
            "cookie": "s3cret",
            "proxy": "http://u:s3cret@p/",
            "headers": {"Authorization": "s3cret", "X-A": "s3cret", "Accept": "text/html"},
            "exits": {"proxies": ["socks5://u:s3cret@p:1"]},
        },
        sinks=["postgresql://u:s3cret@db/x?table=t"],
    )
    shown = bytes_of(hidden(job))
    assert b"s3cret" in bytes_of(job)
    assert b"s3cret" not in shown
    assert b'"Accept":"text/html"' in shown
    assert b'"X-A":"***"' in shown, "deny by default: only values of harmless headers are shown"


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.name)
def test_the_examples_are_good(file: Path) -> None:
    documents = read_documents(file.read_text(), file.name)
    assert documents
    names = [linter().check(document).name for document in documents]
    assert len(set(names)) == len(names)


def test_a_strange_field_of_a_request_is_named() -> None:
    """D1: the path leads to the field, also inside a request."""
    document = {"name": "j", "requests": ["http://a.b/", {"uri": "http://a.b/1", "metta": 1}]}
    job, faults = linter().judge(document)
    assert job is None
    assert [str(fault) for fault in faults] == [
        "requests[1].metta: is not a known field; did you mean 'meta'?"
    ]


def test_one_job_before_it_needs_no_list() -> None:
    job, faults = linter().judge({**GOOD, "schedule": {"after": "first"}})
    assert not faults
    assert job is not None
    assert job.schedule is not None
    assert job.schedule.after == ("first",)


def test_a_field_may_be_called_on() -> None:
    """Issue 4.7: in YAML `on` is a yes; as the name of a field it is a word."""
    text = """
name: told
enabled: yes
requests: [http://a.b/]
notices: [{webhook: http://a.b/hook, on: [finished]}]
"""
    (document,) = read_documents(text, "x.yaml")
    job, faults = linter().judge(document)
    assert not faults
    assert job is not None
    assert job.enabled is True
    assert job.notices[0].on == ("finished",)
