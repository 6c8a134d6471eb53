"""Use a center over plain HTTP, with the standard library only.

    python examples/http_api.py http://127.0.0.1:8420 skep-data/admin.token URL...

It opens a run, submits the URLs, waits until all requests have ended, and prints status and size
of each page. A program in any language can make the same calls.
"""

from __future__ import annotations

import json
import sys
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

RUN = "http-api-example"


class Center:
    """Calls with a token; JSON in, JSON out."""

    def __init__(self, url: str, token: str) -> None:
        self.place = urlsplit(url).netloc
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def call(self, method: str, path: str, body: object = None) -> bytes:
        connection = HTTPConnection(self.place, timeout=30)
        sent = None if body is None else json.dumps(body)
        connection.request(method, path, sent, self.headers)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        if response.status >= 300:  # noqa: PLR2004 - everything beyond success
            sys.exit(f"{method} {path}: {content.decode()}")
        return content

    def ask(self, method: str, path: str, body: object = None) -> Any:
        return json.loads(self.call(method, path, body))


def main(url: str, token_file: str, *pages: str) -> None:
    center = Center(url, Path(token_file).read_text().strip())
    # Opening a run twice, or sending a page twice, changes nothing.
    center.ask("PUT", f"/api/v1/runs/{RUN}", {"settings": {"retries": 1, "time_limit": 30}})
    accepted = center.ask("POST", f"/requestqueue/{RUN}", list(pages))
    print(f"{accepted['new']} new, {accepted['known']} known")
    wait_for(center)
    show_results(center)


def wait_for(center: Center) -> None:
    while True:
        ledger = center.ask("GET", f"/api/v1/runs/{RUN}")["ledger"]
        if ledger["done"] + ledger["dead"] == ledger["accepted"]:
            return
        time.sleep(0.2)


def show_results(center: Center) -> None:
    """Read finished requests by block; a collected block is not returned again."""
    while blocks := center.ask("GET", f"/requestqueue/{RUN}")["blocks"]:
        for block in blocks:
            for request in block["requests"]:
                show(center, request)
        ids = [block["id"] for block in blocks]
        center.ask("POST", f"/requestqueue/{RUN}/collected", {"blocks": ids})


def show(center: Center, request: dict[str, Any]) -> None:
    detail = center.ask("GET", f"/api/v1/requests/{request['id']}")
    last = detail["attempts"][-1]
    body = center.call("GET", f"/api/v1/requests/{request['id']}/body") if last["length"] else b""
    print(last["status"], len(body), detail["request"]["uri"], last["detail"])


if __name__ == "__main__":
    if len(sys.argv) < 4:  # noqa: PLR2004 - a center, a token and a page
        sys.exit(__doc__)
    main(*sys.argv[1:])
