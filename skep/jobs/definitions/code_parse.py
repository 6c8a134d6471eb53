"""Parses user code within a time limit. May block for some seconds: call it in a thread.

Parsing time grows with the length of the code, and the parser holds the interpreter lock: 127 KB
can take 3.5 s. Only short code is parsed in this process, the rest in a child process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from skep.errors import InvalidInput
from skep.jobs.definitions import code_parse_child

#: Maximum number of characters that are parsed without a child; at most about 0.1 s.
SHORT = 8 * 1024
PARSE_SECONDS = 5.0
_CHILD = Path(code_parse_child.__file__)


def parse_python(source: str) -> dict[str, Any]:
    """As `code_parse_child.parsed`; raises InvalidInput when it takes too long."""
    if len(source) <= SHORT:
        return code_parse_child.parsed(source)
    try:
        ended = subprocess.run(  # noqa: S603 - our own file; it parses and does not execute
            [sys.executable, "-I", "-S", str(_CHILD)],
            input=source.encode("utf-8", "surrogatepass"), capture_output=True,
            timeout=PARSE_SECONDS, check=False, env={}, cwd="/",
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise InvalidInput(
            f"the Python code takes more than {PARSE_SECONDS:g} s to parse; make it smaller"
        ) from error
    if ended.returncode:
        return {"why": "cannot be parsed: the parser crashed"}
    found: dict[str, Any] = json.loads(ended.stdout)
    return found
