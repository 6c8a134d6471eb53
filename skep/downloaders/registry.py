"""What this agent can download with: every kind by its name. Explicit, and called once."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from skep.downloaders.egress import EgressPolicy
from skep.downloaders.http import CONNECTIONS, HttpKind
from skep.downloaders.ports import Kind
from skep.runtime.clock import Clock
from skep.settings import EgressSettings


def kinds(
    clock: Clock, rng: Random, egress: EgressSettings, connections: int = CONNECTIONS
) -> Mapping[str, Kind]:
    """The kinds that an agent offers; `connections` is the most that one run may hold."""
    policy = EgressPolicy(allow=egress.allow, deny=egress.deny)
    offered: list[Kind] = [HttpKind(clock, rng, policy, connections=connections)]
    return {kind.name: kind for kind in offered}
