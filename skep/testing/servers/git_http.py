"""Git repositories over HTTPS: `git http-backend` behind nginx. For tests only.

A server on loopback starts `git http-backend` for each request; nginx with TLS stands before it.
`answers` are written by tests for paths where a hostile server is needed.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

from skep.testing.servers.nginx_tls import TlsNginx

#: Path -> what writes the answer, with the body of the request.
Answers = dict[str, Callable[[BaseHTTPRequestHandler, bytes], None]]


class _GitHandler(BaseHTTPRequestHandler):
    folder: ClassVar[Path]
    answers: ClassVar[Answers]
    #: Off: the server ignores the request for protocol version 2, as old servers do.
    version_2: ClassVar[list[bool]]

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def log_message(self, *_: object) -> None:
        """No lines in the output of tests."""

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        for prefix, answer in self.answers.items():
            if path.startswith(prefix):
                answer(self, body)
                return
        self._run_git(path, body)

    def _run_git(self, path: str, body: bytes) -> None:
        done = subprocess.run(
            ["git", "http-backend"],  # noqa: S607 - the git of the machine
            input=body,
            capture_output=True,
            check=False,
            env=self._variables(path),
        )
        head, _, rest = done.stdout.partition(b"\r\n\r\n")
        fields = [line.partition(": ")[::2] for line in head.decode().splitlines()]
        status = next((value for name, value in fields if name == "Status"), "200")
        self.send_response(int(status.split()[0]))
        for name, value in fields:
            if name != "Status":
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(rest)

    def _variables(self, path: str) -> dict[str, str]:
        protocol = self.headers.get("Git-Protocol", "") if self.version_2[0] else ""
        return {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_PROTOCOL": protocol,
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "PATH_INFO": path,
            "QUERY_STRING": self.path.partition("?")[2],
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "REMOTE_USER": "",
        }


class _ProxyNginx(TlsNginx):
    """Passes everything on to a port of this machine."""

    backend = 0

    def _configuration(self, port: int) -> str:
        passed = f"location / {{ proxy_pass http://127.0.0.1:{self.backend}; }}"
        return super()._configuration(port).replace(f"root {self.root};", passed)


class GitServer:
    """Serves the repositories in `folder` at `url`, with the certificate in `ca_file`."""

    def __init__(
        self, nginx: TlsNginx, folder: Path, answers: Answers, version_2: list[bool]
    ) -> None:
        self.folder, self.answers = folder, answers
        self.ca_file = str(nginx.certificate)
        self.url = f"https://127.0.0.1:{nginx.port}"
        self._version_2 = version_2

    def speak_version_2(self, spoken: bool) -> None:
        self._version_2[0] = spoken


@contextmanager
def git_server(folder: Path) -> Iterator[GitServer]:
    """Raises ServerMissing without nginx or openssl."""
    answers: Answers = {}
    version_2 = [True]
    space = {"folder": folder, "answers": answers, "version_2": version_2}
    backend = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_GitHandler,), space))
    thread = threading.Thread(target=backend.serve_forever, daemon=True)
    thread.start()
    nginx = _ProxyNginx()
    nginx.backend = backend.server_address[1]
    try:
        nginx.make_certificate()
        nginx.start()
        yield GitServer(nginx, folder, answers, version_2)
    finally:
        nginx.close()
        backend.shutdown()
        backend.server_close()
        thread.join()
