"""User code as a downloader (D1, D6, D7, D8): what its author can rely on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Any

import pytest

from skep.archive.frames import read_records, split_request, split_response
from skep.downloaders.curl_options import BadOption
from skep.downloaders.ports import Downloader, Fetched, Kind
from skep.downloaders.refused_kind import offered
from skep.downloaders.registry import kinds
from skep.model.request import Work
from skep.model.run import RunSettings
from skep.model.user_code import Code, CodeLimits
from skep.runtime.clock import SystemClock
from skep.settings import AgentSettings, EgressSettings
from skep.testing.needs import needs
from skep.testing.site import DemoSite

LOOPBACK = EgressSettings(allow=("127.0.0.0/8",))
Open = Callable[..., Downloader]

needs_a_box = pytest.mark.needs("bwrap")


def kinds_of(**settings: Any) -> dict[str, Kind]:
    chosen = AgentSettings(**settings)
    return dict(kinds(SystemClock(), Random(1), LOOPBACK, agent=chosen))


@pytest.fixture(params=["boxed", "limits only"])
async def opened(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Open]:
    """Opens downloaders in a box, or with the kernel's limits alone, and closes them."""
    if request.param == "limits only":
        monkeypatch.setattr("shutil.which", lambda _name: None)
    else:
        needs("bwrap")
    made: list[Downloader] = []

    def open_one(kind: str, source: str, **more: Any) -> Downloader:
        code = Code(source, more.pop("limits", CodeLimits()), more.pop("network", False))
        chosen = {"code": "always", "code_workers": 2, **more.pop("agent", {})}
        settings = RunSettings(downloader=kind, code=code, **{"time_limit": 20.0, **more})
        made.append(kinds_of(**chosen)[kind].open("run", settings))
        return made[-1]

    yield open_one
    for downloader in made:
        await downloader.close()


async def fetch_all(downloader: Downloader, works: list[Work]) -> list[Fetched]:
    """In the order of the works, all under way at once."""
    loop = asyncio.get_running_loop()
    ends: list[asyncio.Future[Fetched]] = [loop.create_future() for _ in works]
    for work, end in zip(works, ends, strict=True):
        downloader.start(work, end.set_result)
    async with asyncio.timeout(60):
        return await asyncio.gather(*ends)


async def fetch(downloader: Downloader, uri: str, **more: Any) -> Fetched:
    return (await fetch_all(downloader, [Work(1, uri, **more)]))[0]


def response_of(fetched: Fetched) -> tuple[int, dict[str, str], bytes]:
    assert fetched.outcome.failure == "", fetched.outcome.detail
    status, headers, body = split_response(read_records(fetched.frames)[0])
    return status, {name.lower(): value for name, value in headers}, body


@pytest.mark.parametrize(
    ("returned", "kind", "body"),
    [
        ("b'\\x00\\xff'", "application/octet-stream", b"\x00\xff"),
        ("'grüß'", "text/plain; charset=utf-8", "grüß".encode()),
        ("{'a': [1, None]}", "application/json", b'{"a":[1,null]}'),
        ("(200, {'Content-Type': 'text/html'}, '<p>')", "text/html", b"<p>"),
    ],
)
async def test_what_run_may_return(opened: Open, returned: str, kind: str, body: bytes) -> None:
    """D8: the archive holds it as an answer, readable like any page."""
    downloader = opened("python", f"def run(uri):\n    return {returned}\n")
    fetched = await fetch(downloader, "http://a.example/x", headers={"X-A": "b"}, body=b"sent")
    status, headers, found = response_of(fetched)
    assert (status, headers["content-type"], found) == (200, kind, body)
    assert headers["x-skep-downloader"].startswith("python ")
    request = split_request(read_records(fetched.frames)[1])
    assert (request.target, request.body) == ("/x", b"sent")
    assert fetched.outcome.received == len(body)


async def test_nothing_is_an_answer_too(opened: Open) -> None:
    fetched = await fetch(opened("python", "def run(uri):\n    pass\n"), "http://a.example/")
    assert response_of(fetched)[0] == 204


async def test_run_gets_what_it_has_parameters_for(opened: Open) -> None:
    source = "def run(uri, meta, *, method, headers):\n    return [uri, meta, method, headers]\n"
    downloader = opened("python", source, headers={"A": "run", "B": "run"})
    fetched = await fetch(
        downloader, "http://a.example/", meta={"n": 1}, method="POST", headers={"B": "own"}
    )
    expected = ["http://a.example/", {"n": 1}, "POST", {"A": "run", "B": "own"}]
    assert json.loads(response_of(fetched)[2]) == expected


async def test_coroutines_run_side_by_side(opened: Open) -> None:
    source = """
import asyncio
together = 0
async def run(uri):
    global together
    together += 1
    await asyncio.sleep(0.3)
    return together
"""
    downloader = opened("python", source, agent={"code_workers": 1})
    works = [Work(n, f"http://a.example/{n}") for n in range(8)]
    most = [int(response_of(one)[2]) for one in await fetch_all(downloader, works)]
    assert most == [8] * 8


async def test_children_stay_warm(opened: Open) -> None:
    """A module is loaded once per process, not once per request."""
    source = "import os\nprint('loading')\ndef run(uri):\n    return os.getpid()\n"
    downloader = opened("python", source)
    works = [Work(n, f"http://a.example/{n}") for n in range(200)]
    ended = await fetch_all(downloader, works)
    assert len({response_of(one)[2] for one in ended}) <= 2
    assert sum("loading" in one.outcome.detail for one in ended) <= 2, "stderr is in the log"


async def test_an_error_names_the_line_and_keeps_stderr(opened: Open) -> None:
    """D8: the reason of the failure is in the outcome's detail."""
    source = "def run(uri):\n    print('half way')\n    raise ValueError('no such page')\n"
    downloader = opened("python", source)
    outcome = (await fetch(downloader, "http://a.example/")).outcome
    assert outcome.failure == "code"
    assert outcome.detail == "ValueError: no such page (line 3, in run) | half way"
    assert outcome.elapsed_us > 0
    again = (await fetch(downloader, "http://a.example/")).outcome
    assert again.detail == outcome.detail, "the process went on"


async def test_an_error_status_is_a_failure_unless_it_is_accepted(opened: Open) -> None:
    source = "def run(uri):\n    return 404, {}, 'gone'\n"
    refused = await fetch(opened("python", source), "http://a.example/")
    assert (refused.outcome.failure, refused.outcome.status) == ("status", 404)
    taken = await fetch(opened("python", source, accept_status=(404,)), "http://a.example/")
    assert response_of(taken)[0] == 404


async def test_code_that_cannot_be_loaded_says_why(opened: Open) -> None:
    downloader = opened("python", "import no_such_module\ndef run(uri): ...\n")
    works = [Work(n, f"http://a.example/{n}") for n in range(3)]
    for fetched in await fetch_all(downloader, works):
        assert fetched.outcome.failure == "code"
        assert "No module named 'no_such_module'" in fetched.outcome.detail


async def test_a_shell_script(opened: Open) -> None:
    """The URI is the first argument and a variable, the body is the input."""
    script = 'printf "%s|%s|%s|" "$1" "$SKEP_URI" "$SKEP_META"; cat; pwd >here; cat here >&2\n'
    downloader = opened("shell", script)
    works = [Work(n, f"http://a.example/{n}", body=b"in", meta={"n": n}) for n in range(3)]
    for n, fetched in enumerate(await fetch_all(downloader, works)):
        uri = f"http://a.example/{n}"
        assert response_of(fetched)[2].decode() == f'{uri}|{uri}|{{"n": {n}}}|in'
        assert fetched.outcome.detail.endswith("/request"), "stderr is in the log"


async def test_a_script_that_fails(opened: Open) -> None:
    outcome = (
        await fetch(opened("shell", "echo oh no >&2\nexit 3\n"), "http://a.example/")
    ).outcome
    assert outcome.failure == "code"
    assert outcome.detail == "RuntimeError: the script ended with exit code 3 | oh no"


async def test_a_late_request_fails_alone(opened: Open) -> None:
    """D7: a time-out ends that request's processes; those that waited behind it are done."""
    source = (
        "import time\ndef run(uri):\n    time.sleep(60 if 'slow' in uri else 0)\n    return 1\n"
    )
    downloader = opened("python", source, time_limit=2.0, agent={"code_workers": 1})
    warm = [Work(n, f"http://a.example/{n}") for n in range(50)]
    await fetch_all(downloader, warm)
    works = [Work(n, f"http://a.example/{'slow' if n == 3 else n}") for n in range(10)]
    ended = await fetch_all(downloader, works)
    assert [one.outcome.failure for one in ended] == ["", "", "", "timeout", *[""] * 6]
    assert ended[3].outcome.detail == "the code had no result within 2 s"


@needs_a_box
@pytest.mark.parametrize("network", [True, False])
async def test_the_network_is_there_when_it_was_asked_for(network: bool) -> None:
    """Fault 63: no network unless asked, and then through the agent's egress guard."""
    source = """
import urllib.request
def run(uri):
    with urllib.request.urlopen(uri, timeout=5) as answer:
        return answer.status, {}, answer.read()
"""
    settings = RunSettings(downloader="python", code=Code(source, network=network))
    async with DemoSite(pages=3) as site:
        downloader = kinds_of()["python"].open("run", settings)
        try:
            fetched = await fetch(downloader, f"{site.url}/page/1")
        finally:
            await downloader.close()
    if network:
        assert response_of(fetched)[2].startswith(b"<!doctype html>")
    else:
        assert fetched.outcome.failure == "code"
        assert "refused" in fetched.outcome.detail or "unreachable" in fetched.outcome.detail


@needs_a_box
async def test_the_egress_guard_holds_for_code_too() -> None:
    """Fault 54: what the agent may not reach, user code on it may not reach either."""
    source = """
import urllib.request, urllib.error
def run(uri):
    try:
        urllib.request.urlopen(uri, timeout=5)
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read().decode()}"
"""
    guarded = kinds(SystemClock(), Random(1), EgressSettings(), agent=AgentSettings())
    settings = RunSettings(downloader="python", code=Code(source, network=True))
    async with DemoSite(pages=1) as site:
        downloader = guarded["python"].open("run", settings)
        try:
            said = response_of(await fetch(downloader, f"{site.url}/page/0"))[2].decode()
        finally:
            await downloader.close()
    assert said.startswith("403 address 127.0.0.1 is not allowed (loopback)")


async def test_kinds_that_are_switched_off_say_so() -> None:
    """D6: an operator's switch; the reason is in the request's log."""
    known = kinds_of(kinds_off=("shell", "curl"), code="always")
    assert offered(known.values()) == ("http", "python")
    refused = await fetch(known["shell"].open("run", RunSettings(downloader="shell")), "http://a/")
    assert refused.outcome.failure == "code"
    assert "'shell' is disabled on this agent (agent.kinds_off)" in refused.outcome.detail


async def test_code_is_offered_by_default_only_where_it_is_boxed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fault 63: powerful things are on only where they are contained."""
    monkeypatch.setattr("shutil.which", lambda _name: None)
    assert offered(kinds_of().values()) == ("http", "curl")
    assert offered(kinds_of(code="always").values()) == ("http", "curl", "python", "shell")
    assert offered(kinds_of(code="never").values()) == ("http", "curl")
    refused = await fetch(kinds_of()["python"].open("run", RunSettings()), "http://a/")
    assert "bubblewrap is not installed" in refused.outcome.detail


async def test_curl_makes_requests_as_its_options_say() -> None:
    """D6: through the agent's own libcurl, under the egress guard, into the archive."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"a=1"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    settings = RunSettings(downloader="curl", curl=("-A", "me/1", "-u", "u:p", "-d", "a=1"))
    downloader = kinds_of(code="never")["curl"].open("run", settings)
    try:
        fetched = await fetch(downloader, f"http://127.0.0.1:{port}/x")
    finally:
        await downloader.close()
        server.close()
    assert response_of(fetched)[2] == b"hi"
    assert asked[0].startswith(b"POST /x HTTP/1.1\r\n")
    for line in (b"User-Agent: me/1", b"Authorization: Basic dTpw", b"form-urlencoded"):
        assert line in asked[0]
    assert "authorization" not in str(read_records(fetched.frames)).lower(), "no secret is kept"


async def test_curl_with_an_unsafe_option_is_not_opened() -> None:
    settings = RunSettings(downloader="curl", curl=("--output", "x"))
    with pytest.raises(BadOption, match="it would write a file"):
        kinds_of(code="never")["curl"].open("run", settings)
