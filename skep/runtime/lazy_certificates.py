"""aiohttp, without the certificates of the machine until a connection needs them.

When it is imported, aiohttp makes a TLS context and reads every root certificate into it:
some 50 ms in each process, while most calls go to a center on the same machine. Modules
take `aiohttp` from here. Contexts that are made during that import read the certificates when
they are first used; nothing is verified against fewer certificates than before.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def reading_later() -> Iterator[None]:
    """Contexts that ask for the default certificates meanwhile get them at their first use."""

    def note(context: ssl.SSLContext) -> None:
        _read_at_first_use(context, lambda: getattr(ssl.SSLContext, _READ)(context))

    # It hides the method of the same name that the class inherits.
    setattr(ssl.SSLContext, _READ, note)
    try:
        yield
    finally:
        delattr(ssl.SSLContext, _READ)


_READ = "set_default_verify_paths"
#: Every connection of a context begins with one of them.
_USES = ("wrap_bio", "wrap_socket")


def _read_at_first_use(context: ssl.SSLContext, read: Callable[[], None]) -> None:
    """Methods of the instance hide those of its class until the first call of either."""

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
