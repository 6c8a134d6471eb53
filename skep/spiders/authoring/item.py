"""Items: what a spider finds, as plain data that can be stored anywhere.

Runs in the spider's process. A dict, a dataclass, a msgspec Struct or an `Item`; what
cannot be stored is refused where it was yielded, with the field's name.
"""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any

import msgspec

from skep.errors import InvalidInput

_pack = msgspec.msgpack.Encoder().encode


class Item(msgspec.Struct):
    """An item with declared fields; values of another type are refused.

    class Quote(skep.Item):
        text: str
        author: str = ""
    """


def is_item(found: object) -> bool:
    """Whether it is something that a spider may yield as an item."""
    return isinstance(found, dict | msgspec.Struct) or (
        is_dataclass(found) and not isinstance(found, type)
    )


def as_data(item: Any) -> tuple[dict[str, Any], int]:
    """(the item as plain data, its size in bytes); raises InvalidInput."""
    try:
        data: dict[str, Any] = msgspec.to_builtins(item, str_keys=True)
        if isinstance(item, Item):
            msgspec.convert(data, type(item))
        return data, len(_pack(data))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        # ValidationError and UnicodeEncodeError are kinds of ValueError.
        name = type(item).__name__
        raise InvalidInput(f"this {name} cannot be kept as an item: {error}") from error
