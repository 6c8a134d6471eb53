"""The real `curl` program as the reference for an HTTP client. For tests only.

If our client differs, the test says why.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from typing import NamedTuple

from skep.testing.private import ServerMissing

#: Written to stderr after the body.
_FACTS = "%{stderr}\n%{http_code} %{num_redirects} %{http_version} %{url_effective}"
#: Exit codes by failure class.
FAILURES = {
    0: "", 1: "content", 8: "content", 18: "network", 23: "content", 28: "timeout",
    47: "content", 52: "network", 56: "network", 61: "content", 92: "network",
}  # fmt: skip


class Curled(NamedTuple):
    """What curl reports about its last URL."""

    #: The failure class of its exit code, "" = success; the code itself if there is no class.
    failure: str
    status: int
    redirects: int
    #: For example `1.1` or `2`.
    version: str
    url: str
    body: bytes


async def curl(*arguments: str, urls: Sequence[str], seconds: float = 5.0) -> Curled:
    """Follows redirects, keeps cookies in memory, reads no configuration."""
    program = shutil.which("curl")
    if program is None:
        raise ServerMissing("curl", "curl")
    common = ("-q", "-sS", "-L", "--max-redirs", "10", "--noproxy", "*", "-b", "", "-m")
    process = await asyncio.create_subprocess_exec(
        *(program, *common, str(seconds), "-w", _FACTS, *arguments, *urls),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    body, said = await process.communicate()
    status, followed, version, url = said.decode().splitlines()[-1].split(" ", 3)
    code = process.returncode or 0
    failure = FAILURES.get(code, f"curl {code}")
    return Curled(failure, int(status), int(followed), version, url, body)
