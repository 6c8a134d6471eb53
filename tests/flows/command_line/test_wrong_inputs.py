"""A table of wrong inputs: settings, flags, environment, files, job documents, cron lines,
bodies and queries of the API, names and ids (U13). Each answer has the value, what is allowed or
the nearest name, and what to do."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from skep.testing.processes import QUICK, CenterProcess

pytestmark = pytest.mark.xdist_group("cli")

URL = "http://127.0.0.1:9/"
#: What is for programmers, and never for people.
FOR_PROGRAMS = re.compile(
    r"Traceback|Expected `|`(int|str|float|bool|array|object)`|\$\.|\$\[|Invalid enum|<class|"
    r"Cannot connect to host|ssl:default|Connect call|valid integer|valid float|isoformat|"
    r"not a valid [A-Z]|Object (contains|missing)|Bad (minute|hour|day|month)|create it with PUT"
)
SPIDER = """
import skep

class Plain(skep.Spider):
    name = "plain"
    count: int = 3
    start_urls = ["http://127.0.0.1:9/"]

    def parse(self, response):
        yield {}

    def parse_page(self, response):
        yield {}
"""
#: Files that the command lines name.
FILES: dict[str, bytes] = {
    "plain.py": SPIDER.encode(),
    "no_spider.py": b"x = 1\n",
    "syntax.py": b"def (\n",
    "bytes.dat": b"\x00\xff",
    "empty.yaml": b"",
    "not-yaml.yaml": b"name: a\n  b: [",
    "not-toml.toml": b"a = [\n",
    "wrong.token": b"nosuchtoken\n",
}
#: A command line -> parts of what it says. `NAME=VALUE` words in front are its environment.
TYPED: dict[str, tuple[str, ...]] = {
    # settings
    "up --data x --set lanes.mid_limit=abc": ("lanes.mid_limit is 'abc'", "a whole number"),
    "up --data x --set nosuch.setting=1": ("no setting 'nosuch.setting'", "settings.md"),
    "up --data x --set center.prot=1": ("did you mean 'center.port'?",),
    "up --data x --set center.port": ("'center.port'", "NAME=VALUE"),
    "up --data x --set store.url=foo://x": (
        "'foo'",
        "sqlite, postgresql, postgres, mysql or mariadb",
    ),
    "up --data x --set bus.url=foo://x": ("'foo'", "memory:// or redis://"),
    "up --data x --set archive.url=foo://x": ("foo", "a folder or s3://"),
    "up --data x --set egress.allow=300.0.0.0/8": ("'300.0.0.0/8'", "such as 10.0.0.0/8"),
    "up --data x --set agent.code=maybe": ("'maybe'", "one of boxed, always, never"),
    "up --data x --config not-toml.toml": ("not-toml.toml is not valid TOML",),
    "up --data x --config bytes.dat": ("bytes.dat is not valid UTF-8", "TOML"),
    "up --data x --config nosuch.toml": ("cannot read nosuch.toml",),
    # environment
    "SKEP_CENTER_PORT=abc up --data x": ("center.port is 'abc'", "at most 65535"),
    "SKEP_LANES_MID_LIMIT=0 up --data x": ("lanes.mid_limit is '0'", "at least 1"),
    "SKEP_CENTER_AUTH=perhaps up --data x": ("center.auth is 'perhaps'", "true or false"),
    "SKEP_CENTER=nonsense info": ("http://nonsense", "has no address", "--center URL"),
    # flags
    "up --store": ("'--store'", "--set store.url=VALUE"),
    "up --prot 1": ("'--prot'", "did you mean --port"),
    "up --port abc": ("--port is 'abc'", "a whole number, at least 0, at most 65535"),
    "up --port 70000": ("--port is '70000'", "at most 65535"),
    "sumbit": ("'sumbit'", "did you mean submit?"),
    "job aply": ("'aply'", "did you mean 'apply'?"),
    "schedule try": ("'try'", "fires, ls, next, preview"),
    "run plain.py -s retries=many": ("retries is 'many'", "a whole number, at least 0"),
    "run plain.py -s retry=1": ("no setting 'retry'", "did you mean 'retries'?"),
    "run plain.py -a count=many": ("count='many'", "a whole number"),
    "run plain.py -a count": ("'count'", "NAME=VALUE"),
    "run plain.py --pages 0": ("--pages is '0'", "at least 1"),
    "run plain.py -o foo:bar": ("'foo'", "jsonl, csv"),
    "run plain.py -o redis://127.0.0.1/0?lst=a": ("lst", "list"),
    "run nosuch.py": ("no file nosuch.py",),
    "run no_spider.py": ("no_spider.py holds no spider", "skep.Spider"),
    "run syntax.py": ("syntax.py:1", "invalid syntax"),
    "submit x --new --set retries=many bytes.dat": ("retries is 'many'", "a whole number"),
    "submit x --new --set prio=1 bytes.dat": ("no setting 'prio'", "did you mean 'priority'?"),
    "submit x --new --priority 9 bytes.dat": ("--priority is '9'", "at least -1, at most 5"),
    "submit x --new bytes.dat": ("line 1", "not valid UTF-8"),
    "submit x --new nosuch.txt": ("nosuch.txt", "No such file"),
    "token add x --role god": ("'god'", "viewer, operator, admin"),
    "token add x": ("--role is missing", "viewer, operator, admin"),
    "completion tcsh": ("'tcsh'", "bash, zsh, fish"),
    "sites set example.org --rate fast": ("--rate is 'fast'", "a number, at least 0"),
    "request ls --state foo": ("--state is 'foo'", "waiting, queued"),
    # addresses and tokens
    "info --center http://127.0.0.1:9": ("http://127.0.0.1:9", "refused", "skep up"),
    "info --center nonsense": ("'nonsense' has no address", "--center URL"),
    "info --center ftp://x": ("'ftp://x'", "http://HOST:PORT"),
    "info --center http://127.0.0.1:99999": ("99999", "http://HOST:PORT"),
    "info --token-file wrong.token": ("this center does not know the token", "--token-file FILE"),
    "info --token-file nosuch.token": ("cannot read nosuch.token",),
    "info --token-file bytes.dat": ("bytes.dat is not valid UTF-8",),
    # names and ids
    "runs show nosuch": ("'nosuch'", "runs` lists runs"),
    "data export nosuch": ("'nosuch'", "runs` lists runs"),
    "replay nosuch --spider plain.py": ("'nosuch'", "runs` lists runs"),
    "submit nosuch empty.yaml": ("'nosuch'", "runs` lists runs", "--new"),
    "request ls --run nosuch": ("'nosuch'", "runs` lists runs"),
    "failures ls --job nosuch": ("'nosuch'", "job ls` lists jobs"),
    "failures retry --job nosuch --yes": ("'nosuch'", "job ls` lists jobs"),
    "dispatch --log --run nosuch": ("'nosuch'", "runs` lists runs"),
    "failures show nosuch": ("'nosuch'", "such as 0a1b2c3d4e5f@example.com"),
    "job run nosuch": ("'nosuch'", "job ls` lists jobs"),
    "schedule next nosuch": ("'nosuch'", "job ls` lists jobs"),
    "agents show nosuch": ("'nosuch'", "agents` lists them"),
    "token revoke nosuch": ("'nosuch'", "token ls` lists them"),
    "why nosuch": ("'nosuch'", "block:NUMBER"),
    "request show abc": ("ID is 'abc'", "a whole number, at least 0"),
    "request show 999999": ("999999", "request ls` lists requests"),
    "parse http://127.0.0.1:9/ --spider plain.py --callback parse_pag": (
        "'parse_pag'",
        "did you mean 'parse_page'?",
    ),
    "parse http://127.0.0.1:9/ --spider plain.py --callback nosuch": ("'nosuch'", "parse_page"),
    "parse http://127.0.0.1:9/": ("--spider is missing",),
    "fetch nonsense": ("'nonsense'", "scheme://host/path"),
    "fetch ftp://x/y": ("'ftp'", "http or https"),
    "new spider 1x": ("'1x'", "first a letter"),
    # cron lines
    "schedule preview 61_*_*_*_*": ("its minute is '61'", "0 to 59"),
    "schedule preview 0_25_*_*_*": ("its hour is '25'", "0 to 23"),
    "schedule preview 0_0_31_2_*": ("month 2 has no day 31",),
    "schedule preview *_*_*_*": ("4 fields", "minute, hour, day, month and weekday"),
    "schedule preview @reboot": ("'@reboot'", "@hourly"),
    "schedule preview 0_0_*_*_* --tz Mars": ("'Mars'", "such as Europe/Berlin"),
    "schedule preview 0_0_*_*_* --exclude someday": ("'someday'", "12-25"),
    "schedule preview 0_0_*_*_* --from yesterday": ("'yesterday'", "2026-12-24T18:00"),
    # files of jobs
    "job lint bytes.dat": ("bytes.dat is not text", "YAML"),
    "job lint empty.yaml": ("empty.yaml contains no document", "jobs.md"),
    "job lint not-yaml.yaml": ("not YAML: line 2",),
    "job lint nosuch.yaml": ("nosuch.yaml: No such file",),
}
GOOD = {"name": "a", "requests": [URL]}
#: What is wrong in a job document -> parts of what `job lint` and the API say.
DOCUMENTS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "unknown field": ({**GOOD, "prio": 1}, ("prio", "did you mean 'priority'?")),
    "priority 9": ({**GOOD, "priority": 9}, ("at least -1, at most 5", "it is 9")),
    "no requests": ({**GOOD, "requests": []}, ("requests: is empty", "generators, a spider")),
    "object for list": ({**GOOD, "requests": {}}, ("requests: must be a list", "not a mapping")),
    "text for a mapping": ({**GOOD, "placement": "sticky"}, ("placement: must be a mapping",)),
    "sticky": (
        {**GOOD, "placement": {"strategy": "sticky"}},
        ("one of any, fixed, chained, hashed", "it is 'sticky'"),
    ),
    "retries many": ({**GOOD, "settings": {"retries": "many"}}, ("a whole number", "'many'")),
    "cron": ({**GOOD, "schedule": {"cron": "61 * * * *"}}, ("its minute is '61'", "0 to 59")),
    "every": ({**GOOD, "schedule": {"every": "soon"}}, ("a whole number", "it is 'soon'")),
    "zone": ({**GOOD, "schedule": {"cron": "@daily", "zone": "Mars"}}, ("'Mars'", "Europe/Berlin")),
    "overlap": (
        {**GOOD, "schedule": {"every": 60, "overlap": "maybe"}},
        ("one of skip, queue, replace, parallel", "'maybe'"),
    ),
    "name": ({**GOOD, "name": "a b"}, ("1 to 46 letters", "'a b'")),
    "not a URL": ({**GOOD, "requests": ["nonsense"]}, ("'nonsense'", "scheme://host/path")),
    "scheme": ({**GOOD, "requests": ["ftp://x/"]}, ("ftp://", "http, https")),
    "downloader": ({**GOOD, "downloader": "htp"}, ("'htp'", "use one of ", "curl")),
    "generator": (
        {"name": "a", "generators": [{"kind": "sqll"}]},
        ("one of list, file, python, shell, sitemap, sql", "'sqll'"),
    ),
    "enabled": ({**GOOD, "enabled": "maybe"}, ("true or false", "'maybe'")),
    "sink": ({"name": "a", "spider": {"path": "a.py"}, "sinks": ["foo:x"]}, ("'foo'", "jsonl")),
}
#: Method, path and body of a call -> parts of the answer.
CALLS: dict[str, tuple[str, str, Any, tuple[str, ...]]] = {
    "unknown field": ("POST", "requestqueue/r", [{"uri": URL, "prio": 1}], ("did you mean",)),
    "url for uri": ("POST", "requestqueue/r", [{"url": URL}], ("url", "did you mean", "uri'?")),
    "priority 9": (
        "POST",
        "requestqueue/r",
        [{"uri": URL, "priority": 9}],
        ("request 0: priority 9", "use -1 to 5"),
    ),
    "object for list": ("POST", "requestqueue/r", {"requests": []}, ("must be a list",)),
    "number for text": ("POST", "requestqueue/r", [3], ("[0] is 3", "or text")),
    "not a URL": ("POST", "requestqueue/r", ["nonsense"], ("'nonsense'", "scheme://host/path")),
    "not JSON": ("POST", "requestqueue/r", b"abc", ("malformed",)),
    "limit abc": ("GET", "api/v1/requests?limit=abc", None, ("limit is 'abc'", "at most 1000")),
    "limit 0": ("GET", "requestqueue/r?limit=0", None, ("limit is '0'", "at least 1")),
    "state": ("GET", "api/v1/requests?state=foo", None, ("state is 'foo'", "waiting, queued")),
    "parameter": ("GET", "api/v1/requests?runn=r", None, ("'runn'", "did you mean 'run'?")),
    "id": ("GET", "api/v1/requests/abc", None, ("'abc'", "decimal numbers")),
    "run's name": ("PUT", "api/v1/runs/a%20b", {}, ("'a b'", "1 to 64 letters")),
    "run's setting": (
        "PUT",
        "api/v1/runs/x",
        {"settings": {"retries": "many"}},
        ("settings.retries is 'many'", "a whole number, at least 0, at most 1000"),
    ),
    "run's field": ("PUT", "api/v1/runs/x", {"setting": {}}, ("did you mean 'settings'?",)),
    "placement": (
        "PUT",
        "api/v1/runs/x",
        {"settings": {"placement": {"strategy": "sticky"}}},
        ("'sticky'", "any, fixed, chained, hashed"),
    ),
    "role": (
        "POST",
        "api/v1/tokens",
        {"name": "a", "role": "god"},
        ("role is 'god'", "viewer, operator, admin"),
    ),
    "missing": ("POST", "api/v1/tokens", {"name": "a"}, ("role is missing",)),
    "names that differ": ("PUT", "api/v1/jobs/b", GOOD, ("'a'", "'b'", "same name in both")),
    "job's name": ("GET", "api/v1/jobs/a%20b", None, ("'a b'", "1 to 46 letters")),
    "no requests": ("PUT", "api/v1/jobs/a", {**GOOD, "requests": []}, ("requests: is empty",)),
    "spider's file": (
        "PUT",
        "api/v1/jobs/a",
        {"name": "a", "spider": {"path": "nosuch.py"}},
        ("'nosuch.py'", "the folder for jobs, /", "jobs.folder"),
    ),
    "block": ("POST", "requestqueue/r/collected", {"blocks": [99]}, ("no block 99", "lists")),
    "block's number": (
        "POST",
        "requestqueue/r/collected",
        {"blocks": ["x"]},
        ("blocks[0] is 'x'", "a whole number"),
    ),
}
#: Runs every command line in one process: an interpreter for each would take a minute.
EACH = """
import contextlib, io, json, os, sys
from skep.cli.main import run
answers = {}
for line in json.loads(sys.stdin.read()):
    words = line.split()
    env = dict(word.split("=", 1) for word in words if word.startswith("SKEP_"))
    words = [w.replace("_*", " *").replace("*_", "* ").replace("_", " ") if words[:2] ==
             ["schedule", "preview"] else w for w in words if not w.startswith("SKEP_")]
    said = io.StringIO()
    os.environ.update(env)
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = run(words)
    for name in env:
        del os.environ[name]
    answers[line] = [code, said.getvalue()]
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def center(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CenterProcess]:
    env = {"SKEP_JOBS_FOLDER": str(tmp_path_factory.mktemp("jobs"))}
    with CenterProcess(tmp_path_factory.mktemp("center"), env, with_agent=True) as running:
        called(running, "PUT", "api/v1/runs/r", {})
        yield running


@pytest.fixture(scope="module")
def answers(
    center: CenterProcess, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[int, str]]:
    """(exit code, what was said) of every command line of the table."""
    folder = tmp_path_factory.mktemp("typed")
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    for number, (document, _) in enumerate(DOCUMENTS.values()):
        (folder / f"{number}.json").write_text(json.dumps(document))
    lines = [*TYPED, *(f"job lint {number}.json" for number in range(len(DOCUMENTS)))]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SKEP_")}
    done = subprocess.run(
        [sys.executable, "-c", EACH],
        input=json.dumps(lines),
        cwd=folder,
        env={**kept, **QUICK, "SKEP_DATA": str(center.folder), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, tuple[int, str]] = json.loads(done.stdout.splitlines()[-1])
    return found


def called(center: CenterProcess, method: str, path: str, body: Any) -> tuple[int, str]:
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {center.admin_token}", "Content-Type": "application/json"}
    request = Request(f"{center.url}/{path}", data, headers, method=method)
    try:
        with urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, json.loads(error.read())["detail"]


def assert_explained(said: str, parts: tuple[str, ...]) -> None:
    assert not FOR_PROGRAMS.search(said), said
    missing = [part for part in parts if part not in " ".join(said.split())]
    assert not missing, said


@pytest.mark.parametrize("line", TYPED)
def test_a_command_line(answers: dict[str, tuple[int, str]], line: str) -> None:
    """U13: never exit code 0."""
    code, said = answers[line]
    assert code not in {0, None}, said
    assert_explained(said, TYPED[line])


@pytest.mark.parametrize("wrong", DOCUMENTS)
def test_a_job_document(
    center: CenterProcess, answers: dict[str, tuple[int, str]], wrong: str
) -> None:
    """U13: the same sentence on the command line and from the API."""
    document, parts = DOCUMENTS[wrong]
    code, said = answers[f"job lint {list(DOCUMENTS).index(wrong)}.json"]
    assert code == 2, said
    assert_explained(said, parts)
    if wrong != "name":
        status, told = called(center, "PUT", "api/v1/jobs/a", document)
        assert status == 400, told
        assert_explained(told, parts)


@pytest.mark.parametrize("wrong", CALLS)
def test_a_call(center: CenterProcess, wrong: str) -> None:
    """U13: bodies, queries, names and ids of the API."""
    method, path, body, parts = CALLS[wrong]
    status, told = called(center, method, path, body)
    assert 400 <= status < 500, told
    assert_explained(told, parts)


def test_the_table_is_long_enough() -> None:
    """U13: the 47 inputs that were found, and 40 more."""
    assert len(TYPED) + len(DOCUMENTS) + len(CALLS) >= 87
