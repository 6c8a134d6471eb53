"""Previews which keys would move: compares two rings over the same keys. Pure.

Centers run it on request. It moves nothing, and knows agents only by their ids.
"""

from __future__ import annotations

from collections.abc import Sequence

from skep.model.fleet.placement import Move, Preview, Share
from skep.placement.hash_ring import Ring, imbalance, moved


def preview(before: Sequence[str], after: Sequence[str], keys: Sequence[str]) -> Preview:
    """A key that is given several times counts several times."""
    old, new = Ring(before), Ring(after)
    had, has = old.shares(keys), new.shares(keys)
    moves = moved(old, new, keys)
    agents = sorted({*old.agents, *new.agents})
    leave, come = set(old.agents) - set(new.agents), set(new.agents) - set(old.agents)
    ideal = len(keys) * (len(leave) / max(1, len(old.agents)) + len(come) / max(1, len(new.agents)))
    return Preview(
        len(keys),
        moves.total(),
        ideal,
        imbalance(had),
        imbalance(has),
        [Share(agent, had[agent], has[agent]) for agent in agents],
        [Move(source, to, count) for (source, to), count in moves.most_common()],
    )
