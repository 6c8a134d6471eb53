"""Assets of the portal: files of the package under names with their hash. Loaded once.

A name with a hash never changes its content, so browsers keep it for a year; a page of an older
center that asks for another hash gets the file of this one, uncached.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_NAME = re.compile(r"(?P<stem>[a-z_]+)(\.(?P<mark>[0-9a-f]{12}))?\.(?P<ending>css|js|svg)")
_IMPORT = re.compile(rb'(from |import |import\()"\./([a-z_]+\.js)"')


@dataclass(frozen=True, slots=True)
class Asset:
    content: bytes
    content_type: str
    mark: str


class Assets:
    """Files by name, and their names with hashes."""

    def __init__(self, contents: dict[str, bytes]) -> None:
        # One mark for all: modules import each other, so a change of one changes all names.
        whole = hashlib.sha256()
        for name in sorted(contents):
            whole.update(name.encode() + b"\0" + contents[name] + b"\0")
        self.mark = whole.hexdigest()[:12]
        self._assets = {
            name: Asset(self._linked(data), _TYPES[name.rpartition(".")[2]], self.mark)
            for name, data in contents.items()
        }

    def _linked(self, data: bytes) -> bytes:
        """Imports between modules name the hashed files."""
        mark = self.mark.encode()

        def hashed(found: re.Match[bytes]) -> bytes:
            stem = found[2].removesuffix(b".js")
            return found[1] + b'"./' + stem + b"." + mark + b'.js"'

        return _IMPORT.sub(hashed, data)

    def path(self, name: str) -> str:
        """The path of a file with its hash. Raises KeyError."""
        stem, _, ending = name.rpartition(".")
        return f"/assets/{stem}.{self._assets[name].mark}.{ending}"

    def find(self, name: str) -> tuple[Asset, bool] | None:
        """The file of a name with or without hash, and whether the hash is the current one."""
        found = _NAME.fullmatch(name)
        if found is None:
            return None
        asset = self._assets.get(f"{found['stem']}.{found['ending']}")
        return None if asset is None else (asset, found["mark"] == asset.mark)


@cache
def package_assets() -> Assets:
    """The files of this package."""
    folder = files("skep.portal").joinpath("assets")
    names = (one for one in folder.iterdir() if _NAME.fullmatch(one.name))
    return Assets({one.name: one.read_bytes() for one in names})
