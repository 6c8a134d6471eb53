"""A request as the API and exports show it. Run by centers.

It has no headers and no body: only what a list may show.
"""

from __future__ import annotations

import msgspec

from skep.store.ports.requests import RequestView
from skep.wire.api.requests import RequestLine


def line_of(view: RequestView) -> RequestLine:
    """One line of a list."""
    told = {**msgspec.structs.asdict(view), "state": view.state.name.lower()}
    return msgspec.convert(told, RequestLine)
