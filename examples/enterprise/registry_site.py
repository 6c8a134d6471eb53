"""A demo registry of companies on 127.0.0.1: search, company, filings, all JSON.

    python examples/enterprise/registry_site.py [PORT]

It stands for a public registry that spreads one company over several pages.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

COMPANIES: dict[str, dict[str, Any]] = {
    "c1": {"number": "HRB-1001", "name": "Imkerei Lindenhof GmbH", "city": "Bremen"},
    "c2": {"number": "HRB-1002", "name": "Wachs & Wabe AG", "city": "Graz"},
}
FILINGS = {"c1": [{"year": 2024, "kind": "annual report"}], "c2": []}


def page(path: str) -> Any:
    """The answer for a path; None if there is none."""
    parts = urlsplit(path)
    match parts.path.strip("/").split("/"):
        case ["search"]:
            wanted = parse_qs(parts.query).get("number", [""])[0]
            return [{"id": key} for key, one in COMPANIES.items() if one["number"] == wanted]
        case ["companies", key] if key in COMPANIES:
            return {name: COMPANIES[key][name] for name in ("name", "city")}
        case ["companies", key, "filings"] if key in FILINGS:
            return FILINGS[key]
    return None


class Registry(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = page(self.path)
        body = json.dumps(found).encode()
        self.send_response(200 if found is not None else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - its name there
        """Quiet."""


def registry(port: int = 0) -> ThreadingHTTPServer:
    """A server on loopback; `serve_forever` starts it."""
    return ThreadingHTTPServer(("127.0.0.1", port), Registry)


if __name__ == "__main__":
    server = registry(int(sys.argv[1]) if len(sys.argv) > 1 else 8099)
    print(f"registry at http://127.0.0.1:{server.server_address[1]}/")
    server.serve_forever()
