"""A list as it was at one moment, and the difference between two. Pure.

Rows are compared by their encoded bytes. The digest of a list says whether a client has it, at
any center and after a restart.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import msgspec

from skep.model.live import LiveRow
from skep.runtime.masked_answers import masked


class Snapshot:
    """The rows of a list, encoded, in their order. Secrets are masked for every reader."""

    def __init__(self, rows: Sequence[LiveRow], known: Snapshot | None = None) -> None:
        self.rows = {row.key: msgspec.json.encode(masked(row.data, {})) for row in rows}
        digest = blake2b(digest_size=6)
        for key, row in self.rows.items():
            digest.update(f"{len(key)} {len(row)} {key}".encode())
            digest.update(row)
        self.digest = digest.hexdigest()
        if known is not None and known.digest == self.digest:
            self.rows = known.rows

    def page(self, watch: str) -> bytes:
        """The whole list, as the data of an event."""
        head = msgspec.json.encode(watch)
        return b'{"watch":%b,"items":[%b]}' % (head, b",".join(self.rows.values()))

    def change(self, watch: str, before: Snapshot) -> bytes:
        """What is new or different since `before`, and the keys that are gone."""
        changed = [row for key, row in self.rows.items() if before.rows.get(key) != row]
        gone = [key for key in before.rows if key not in self.rows]
        words = msgspec.json.encode(watch), b",".join(changed), msgspec.json.encode(gone)
        return b'{"watch":%b,"changed":[%b],"gone":%b}' % words
