"""Which agents may take a request: the words for it, as jobs, runs and blocks use them.

Pure data. `skep/placement` decides by it; stores and lanes only carry targets about. A
block's target is "" (whoever downloads by HTTP), `kind:NAME` (whoever offers that kind),
`run:NUMBER` (the agents of one run) or the id of the one agent that may take it.
"""

from __future__ import annotations

ANYBODY = ""
KIND = "kind:"
RUN = "run:"
#: What every agent of the first hour could do; its blocks need no word of their own.
PLAIN_KIND = "http"


def kind_target(kind: str) -> str:
    """The target of blocks that any agent with this kind of downloader may take."""
    return ANYBODY if kind == PLAIN_KIND else f"{KIND}{kind}"


def own_target(agent: str) -> tuple[str, ...]:
    """An agent's id as a target; one that looks like another target is none."""
    return () if agent.startswith((KIND, RUN)) else (agent,)
