"""A limit on the memory of a spider's own process, so that a leak harms its run alone.

Called once by the program that runs one spider, before the spider's code is loaded. Never
in a process that does anything else: the limit holds for the whole process.
"""

from __future__ import annotations

import resource

#: Bytes for the last calls of a run when the limit is met.
AIR = 128 * 2**20


def limit_memory(size: int) -> None:
    """Let this process have `size` bytes of address space at most; 0 leaves it as it is.

    Beyond it Python raises MemoryError, which the engine turns into the end of the run.
    """
    now, most = resource.getrlimit(resource.RLIMIT_AS)
    if size and (now == resource.RLIM_INFINITY or size < now):
        resource.setrlimit(resource.RLIMIT_AS, (size, most))


def give_air() -> None:
    """Raise the limit a little, once it is met: the run has to say why it ends, and what
    fills the memory may hang on the spider itself."""
    now, most = resource.getrlimit(resource.RLIMIT_AS)
    if now == resource.RLIM_INFINITY:
        return
    more = now + AIR
    ceiling = more if most == resource.RLIM_INFINITY else min(more, most)
    resource.setrlimit(resource.RLIMIT_AS, (ceiling, most))
