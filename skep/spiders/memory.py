"""A limit on the memory of a spider's own process, so that a leak harms its run alone.

Called once by the program that runs one spider, before the spider's code is loaded. Never
in a process that does anything else: the limit is the whole process's.
"""

from __future__ import annotations

import resource


def limit_memory(size: int) -> None:
    """Let this process have `size` bytes of address space; 0 leaves it as it is.

    Beyond it Python raises MemoryError, which the engine turns into the end of the run.
    """
    if size:
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        ceiling = size if most == resource.RLIM_INFINITY else min(size, most)
        resource.setrlimit(resource.RLIMIT_AS, (ceiling, most))
