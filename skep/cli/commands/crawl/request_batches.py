"""Converts lines of text to batches of requests, each with its line number. Pure.

A line is a URL, or a JSON object with the fields of `NewRequest`; empty lines and lines that
begin with # are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from skep.errors import InvalidInput, SkepError
from skep.model.request import NewRequest

BATCH = 5000
#: Well below the largest body that a center accepts.
BATCH_BYTES = 8 * 2**20

_new_request = msgspec.json.Decoder(NewRequest)
_place = re.compile(r"request (\d+): ")


@dataclass(slots=True)
class Batch:
    """The requests of one call."""

    items: list[NewRequest | str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    size: int = 0

    @property
    def full(self) -> bool:
        return len(self.items) >= BATCH or self.size >= BATCH_BYTES

    def explain(self, error: SkepError) -> SkepError:
        """Replace the position in the batch by the input line in an error of the center."""
        found = _place.match(error.detail)
        if found is None or int(found[1]) >= len(self.lines):
            return error
        line = self.lines[int(found[1])]
        return type(error)(f"line {line}: {error.detail[found.end() :]}")


def batches(source: Iterable[bytes]) -> Iterator[Batch]:
    """Raises InvalidInput with the line number."""
    batch = Batch()
    for number, line in enumerate(source, 1):
        text = line.strip()
        if not text or text.startswith(b"#"):
            continue
        batch.items.append(_item(text, number))
        batch.lines.append(number)
        batch.size += len(text)
        if batch.full:
            yield batch
            batch = Batch()
    if batch.items:
        yield batch


def _item(text: bytes, number: int) -> NewRequest | str:
    try:
        return _new_request.decode(text) if text.startswith(b"{") else text.decode()
    except msgspec.DecodeError as error:
        raise InvalidInput(f"line {number}: not a valid request: {error}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"line {number}: not valid UTF-8") from error
