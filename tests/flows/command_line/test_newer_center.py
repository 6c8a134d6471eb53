"""A command line beside a newer center: every struct of every answer has a field more.

The newer center is a real one behind a small proxy that adds the fields. What people read stays
the same, and JSON for programs has everything that the center sent.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from click.testing import CliRunner, Result
from msgspec import inspect

from skep.center.app import api_table
from skep.cli.main import skep
from skep.testing.polling import until_sync
from skep.testing.processes import CenterProcess

pytestmark = pytest.mark.xdist_group("cli")

NEWER = "of_a_newer_center"
ROUTES = [row.route for row in api_table() if row.route.gives is not None]
JOB = """
name: nightly
requests: [http://127.0.0.1:9/a]
schedule: {cron: "17 3 * * *", zone: Europe/Berlin}
"""
#: A document is shown with every field that came, so that none is lost when it is sent back.
DOCUMENT = "job show nightly"
#: Its history begins with the first heartbeat.
AGENT = "agents show local"
#: With and without --json.
COMMANDS = (
    *("runs", "runs show made", "info", "info --run made", "agents", AGENT),
    *("job ls", DOCUMENT, "job history nightly", "schedule ls", "schedule next nightly"),
    *("failures", "failures ls --run made", "request show 1", "request ls", "sites", "storage"),
    *("sites show 127.0.0.1", "storage --plan", "token ls --all", "why made", "dispatch --log"),
    *("placement show made", "placement preview --remove local", "generator ls made", "doctor"),
    *("data deliveries made", "schedule fires nightly", "job diff nightly", "app ls"),
)
#: They print a part of what they asked for, or what they worked out themselves.
OWN_JSON = {"doctor", "app ls"}


def grown(value: Any, kind: inspect.Type) -> Any:
    """The value with one field more in each of its structs."""
    if isinstance(kind, inspect.Metadata):
        return grown(value, kind.type)
    if isinstance(kind, inspect.UnionType):
        structs = [one for one in kind.types if isinstance(one, inspect.StructType)]
        return grown(value, structs[0]) if structs and isinstance(value, dict) else value
    if isinstance(kind, inspect.StructType) and isinstance(value, dict):
        types = {field.encode_name: field.type for field in kind.fields}
        known = {name: grown(one, types[name]) for name, one in value.items()}
        return {**known, NEWER: {"a": [1]}}
    if isinstance(kind, inspect.CollectionType) and isinstance(value, list):
        return [grown(one, kind.item_type) for one in value]
    if isinstance(kind, inspect.TupleType) and isinstance(value, list):
        return [grown(one, part) for one, part in zip(value, kind.item_types, strict=True)]
    return value


def grown_answer(method: str, path: str, data: bytes) -> bytes:
    for route in ROUTES:
        pattern = re.sub(r"{\w+(:\w+)?}", "[^/]+", route.path)
        if route.method == method and re.fullmatch(pattern, path.partition("?")[0]):
            return json.dumps(grown(json.loads(data), inspect.type_info(route.gives))).encode()
    return data


class Proxy(BaseHTTPRequestHandler):
    """Passes everything on, and adds fields to what comes back."""

    target: str

    def pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)) or None
        names = ("Authorization", "Content-Type", "Accept", "Content-Encoding")
        sent = {name: self.headers[name] for name in names if name in self.headers}
        request = Request(self.target + self.path, body, sent, method=self.command)
        try:
            with urlopen(request) as answer:
                status, kind, data = answer.status, answer.headers["Content-Type"], answer.read()
            data = grown_answer(self.command, self.path, data) if "json" in kind else data
        except HTTPError as error:
            status, kind, data = error.code, error.headers["Content-Type"], error.read()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_DELETE = pass_on  # noqa: N815 - names of the base class

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def newer(center: CenterProcess) -> Iterator[str]:
    handler = type("Of", (Proxy,), {"target": center.url})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def typed(center: CenterProcess, url: str, words: str, text: str = "", **env: str) -> Result:
    place = {"SKEP_DATA": str(center.folder), "SKEP_CENTER": url, "NO_COLOR": "1", **env}
    token = {"SKEP_TOKEN_FILE": str(center.folder / "admin.token")}
    return CliRunner().invoke(
        skep, words.split(), input=text, env={**place, **token}, standalone_mode=False
    )


@pytest.fixture(scope="module")
def center(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CenterProcess]:
    folder = tmp_path_factory.mktemp("center")
    with CenterProcess(folder, {"SKEP_AGENT_NAME": "local"}, with_agent=True) as running:
        (folder / "job.yaml").write_text(JOB)
        assert typed(running, running.url, f"job apply {folder}/job.yaml").exit_code == 0
        assert typed(running, running.url, f"job apply {folder}/job.yaml").exit_code == 0
        sent = typed(running, running.url, "submit made - --new --wait", "http://127.0.0.1:9/x\n")
        assert sent.return_value == 1, sent.output
        until_sync(lambda: '"history":[[' in typed(running, running.url, f"{AGENT} --json").stdout)
        yield running


@pytest.fixture(scope="module")
def url(center: CenterProcess) -> Iterator[str]:
    with newer(center) as found:
        yield found


#: Ages, rates, times, addresses and counts that grow meanwhile.
MOMENTS = re.compile(r"[0-9.,]+|▁.*|[▂-█].*")


def words_of(result: Result) -> list[str]:
    assert result.exception is None, result.output
    return MOMENTS.sub("0", result.stdout).split()


@pytest.mark.parametrize("words", [one for one in COMMANDS if one != DOCUMENT])
def test_people_read_the_same(center: CenterProcess, url: str, words: str) -> None:
    """Issue 11, 3: fields that this version does not know are passed over."""
    expected, found = typed(center, center.url, words), typed(center, url, words)
    assert found.return_value == expected.return_value, found.output
    assert words_of(found) == words_of(expected)


def without(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without(one) for name, one in value.items() if name != NEWER}
    return [without(one) for one in value] if isinstance(value, list) else value


def shape(value: Any) -> Any:
    """Names and types: numbers may have changed meanwhile, and lists have grown."""
    if isinstance(value, dict):
        return {name: shape(one) for name, one in value.items()}
    if isinstance(value, list):
        return sorted({json.dumps(shape(one)) for one in value})
    return "number" if isinstance(value, int | float) else type(value).__name__


@pytest.mark.parametrize("words", COMMANDS)
def test_programs_get_what_was_sent(center: CenterProcess, url: str, words: str) -> None:
    """Issue 11, 3: the same fields with --json, and those of the newer center too."""
    expected = json.loads(typed(center, center.url, f"{words} --json").stdout)
    done = typed(center, url, f"{words} --json")
    found = json.loads(done.stdout)
    assert shape(without(found)) == shape(expected)
    assert (NEWER in done.stdout) == (words not in OWN_JSON)


def test_a_job_that_is_edited_keeps_what_is_not_known(
    center: CenterProcess, url: str, tmp_path: Path
) -> None:
    """A document goes back with every field that came; the center judges it, not the command."""
    shown = typed(center, url, DOCUMENT)
    assert f"{NEWER}:\n" in shown.stdout
    editor = tmp_path / "editor"
    editor.write_text(f"#!/bin/sh\necho 'note: edited' >> $1; cp $1 {tmp_path}/kept\n")
    editor.chmod(0o700)
    refused = typed(center, url, "job edit nightly", EDITOR=str(editor), VISUAL="")
    assert f"{NEWER}:\n" in (tmp_path / "kept").read_text()
    assert NEWER in str(refused.exception), "this center does not know it and says so"
