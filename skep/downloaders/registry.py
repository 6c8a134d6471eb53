"""What this agent can download with: every kind by its name. Explicit, and called once."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from skep.downloaders.egress import EgressPolicy
from skep.downloaders.http import HttpKind
from skep.downloaders.ports import Kind
from skep.runtime.clock import Clock
from skep.settings import EgressSettings


def kinds(clock: Clock, rng: Random, egress: EgressSettings) -> Mapping[str, Kind]:
    """The kinds that an agent offers, in the order of its registration."""
    policy = EgressPolicy(allow=egress.allow, deny=egress.deny)
    offered: list[Kind] = [HttpKind(clock, rng, policy)]
    return {kind.name: kind for kind in offered}
