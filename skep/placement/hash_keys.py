"""The key of a request for `hashed`: its host, prefix, session, repository or URI. Pure.

Run by centers. Equal requests must have equal keys on every center and in every version.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from skep.model.fleet.placement import Key
from skep.store.ports.placement import Wanted

_SCP = re.compile(r"(?:[^@/:]+@)?([^/:]+):(?!//)(.+)")


def key_of(wanted: Wanted, key: Key) -> str:
    """Requests with equal keys go to one agent."""
    match key:
        case "host":
            return wanted.host
        case "prefix":
            return prefix_of(wanted.uri)
        case "session":
            # Without a name there is nothing to keep together but the host.
            return wanted.session or wanted.host
        case "git":
            return repository_of(wanted.uri)
        case "uri":
            return wanted.uri


def prefix_of(uri: str) -> str:
    """The URI up to the first folder of its path: `https://a.example/blog/`."""
    parts = urlsplit(uri)
    folder, slash, _ = parts.path.lstrip("/").partition("/")
    return f"{parts.scheme}://{parts.netloc.lower()}/{folder}{slash}"


def repository_of(uri: str) -> str:
    """The repository of a git URL: the same key for HTTPS and SSH."""
    if "://" not in uri and (found := _SCP.fullmatch(uri)):
        host, path = found[1], found[2]
    else:
        parts = urlsplit(uri)
        host, path = parts.hostname or "", parts.path
    return f"{host.lower()}/{path.strip('/').removesuffix('.git').rstrip('/')}"
