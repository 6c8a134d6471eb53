"""aiohttp, without loading the machine's certificates until a connection needs them.

On import, aiohttp creates a TLS context and reads every root certificate into it: about 50 ms
in each process, while most calls go to a center on the same machine. Modules import `aiohttp`
from here. Contexts created during that import read the certificates on first use; verification
always uses the same certificates as before.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def reading_later() -> Iterator[None]:
    """Contexts that load the default certificates in this block load them on first use."""

    def note(context: ssl.SSLContext) -> None:
        _read_at_first_use(context, lambda: getattr(ssl.SSLContext, _READ)(context))

    # It hides the inherited method of the same name.
    setattr(ssl.SSLContext, _READ, note)
    try:
        yield
    finally:
        delattr(ssl.SSLContext, _READ)


_READ = "set_default_verify_paths"
#: Every connection of a context starts with one of these methods.
_USES = ("wrap_bio", "wrap_socket")


def _read_at_first_use(context: ssl.SSLContext, read: Callable[[], None]) -> None:
    """Instance methods hide the methods of the class until the first call of any of them."""

    def first(name: str) -> Callable[..., Any]:
        def use(*args: Any, **named: Any) -> Any:
            read()
            for each in _USES:
                vars(context).pop(each, None)
            return getattr(context, name)(*args, **named)

        return use

    for name in _USES:
        setattr(context, name, first(name))


with reading_later():
    import aiohttp

__all__ = ["aiohttp"]
