"""Opens a bus by URL. Centers use it; no other module names a backend.

A backend is imported only when its URL is used, so that a center without Redis needs
no Redis client.
"""

from __future__ import annotations

from collections.abc import Mapping

from skep.bus.memory import MemoryBus
from skep.bus.ports import Bus
from skep.errors import ConfigurationError
from skep.model.lane import Lane


def open_bus(url: str, limits: Mapping[Lane, int]) -> Bus:
    """A bus for `memory://`, `redis://` or `rediss://`; `Bus.open` then connects it."""
    scheme = url.partition("://")[0].lower()
    if scheme == "memory":
        return MemoryBus(limits)
    if scheme in {"redis", "rediss"}:
        return _open_redis(url, limits)
    raise ConfigurationError(
        f"bus.url: {scheme[:20]!r} is not known; set it to memory:// or redis://HOST:PORT/DB"
    )


def _open_redis(url: str, limits: Mapping[Lane, int]) -> Bus:
    try:
        from skep.bus.redis import RedisBus
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "redis":
            raise
        raise ConfigurationError(
            "a redis:// bus needs the Redis client: pip install 'skep[redis]'"
        ) from error
    return RedisBus(url, limits)
