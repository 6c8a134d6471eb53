"""Where a sink is: a URL cut into its parts. Pure; it connects to nothing.

The password is in here for the connection; `shown` has none, for logs and people.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import msgspec

from skep.errors import ConfigurationError

#: A path that ends like this needs no scheme.
BY_ENDING = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv"}
HIDDEN = "***"
WEB = frozenset({"http", "https"})


class SinkUrl(msgspec.Struct, frozen=True):
    """A URL without the options that are ours."""

    scheme: str
    authority: str = ""
    path: str = ""
    query: str = ""

    @property
    def url(self) -> str:
        """The whole, password included."""
        return self._with(self.authority)

    @property
    def shown(self) -> str:
        """The whole for people: the password and the values of the query are hidden, and the
        path of a webhook, which often holds a key."""
        login, at, hosts = self.authority.rpartition("@")
        user, colon, _ = login.partition(":")
        hidden = f"{user}{colon}{HIDDEN if colon else ''}{at}{hosts}"
        names = [name for name, _ in parse_qsl(self.query, keep_blank_values=True)]
        path = f"/{HIDDEN}" if self.scheme in WEB and self.path.strip("/") else self.path
        return self._with(hidden, "&".join(f"{name}={HIDDEN}" for name in names), path)

    @property
    def hosts(self) -> str:
        return self.authority.rpartition("@")[2]

    @property
    def login(self) -> tuple[str, str]:
        """(user, password), decoded."""
        user, _, password = self.authority.rpartition("@")[0].partition(":")
        return unquote(user), unquote(password)

    def _with(self, authority: str, query: str | None = None, path: str | None = None) -> str:
        where = self.path if path is None else path
        slashes = "//" if authority else ""
        tail = self.query if query is None else query
        return f"{self.scheme}:{slashes}{authority}{where}{'?' if tail else ''}{tail}"


def scheme_of(url: str) -> str:
    """The scheme in lower case; a path gets it from its ending; raises ConfigurationError."""
    scheme, colon, _ = url.partition(":")
    if colon and scheme.replace("+", "").replace("-", "").isalnum():
        return scheme.lower()
    path = url.partition("?")[0]
    for ending, known in BY_ENDING.items():
        if path.lower().endswith(ending):
            return known
    raise ConfigurationError(
        f"{path[:80]!r} says no kind of sink: end it in .jsonl or .csv, or write KIND:PLACE."
    )


def parse_file(url: str, scheme: str) -> tuple[SinkUrl, dict[str, Any]]:
    """`jsonl:a/b.jsonl?x=1`, `jsonl:///a/b.jsonl` or a bare path: (place, query)."""
    rest = url[len(scheme) + 1 :] if url.lower().startswith(f"{scheme}:") else url
    path, _, query = rest.partition("?")
    path = unquote(path.removeprefix("//") if path.startswith("///") else path)
    if not path or path.endswith("/") or "\0" in path:
        raise ConfigurationError(f"a {scheme}: sink needs the path of a file.")
    return SinkUrl(scheme, path=path), dict(parse_qsl(query, keep_blank_values=True))


def confined(place: SinkUrl, folder: Path) -> SinkUrl:
    """The same file below a folder; raises ConfigurationError when it would be elsewhere."""
    inside = folder.resolve()
    path = (inside / place.path).resolve()
    if Path(place.path).is_absolute() or not path.is_relative_to(inside) or path == inside:
        raise ConfigurationError(
            f"a {place.scheme}: sink of a job writes below the center's folder for outputs "
            f"(`jobs.outputs`), so its path is relative and has no `..`: {place.path[:200]!r}."
        )
    return msgspec.structs.replace(place, path=str(path))


def parse_remote(url: str, ours: tuple[str, ...]) -> tuple[SinkUrl, dict[str, Any]]:
    """A URL with hosts: our options are taken out of its query, the rest stays in it."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigurationError(f"this sink is not a URL: {error}") from error
    if not parts.netloc.rpartition("@")[2]:
        raise ConfigurationError(f"a {parts.scheme}: sink is written {parts.scheme}://HOST/...")
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    options = {name: value for name, value in pairs if name in ours}
    rest = urlencode([pair for pair in pairs if pair[0] not in ours])
    return SinkUrl(parts.scheme.lower(), parts.netloc, parts.path, rest), options
