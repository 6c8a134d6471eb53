"""Checks that a caller is the agent that it claims to be, and its newest process. Centers only.

The token says which agent a caller may be, the session which process of it. Checks use the
roster of this center; before a block is handed out, the store is asked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from skep.center.http.authentication import Identity, Role, check_agent_id
from skep.center.http.endpoint import Call
from skep.center.services import Services
from skep.errors import Fenced, Forbidden, InvalidInput, SkepError, Unavailable
from skep.model.block import Leased
from skep.wire.messages import SESSION_HEADER

_DIGITS = 18


def session_in(headers: Mapping[str, str]) -> int:
    """The session number; 0 for older agents that send none. Raises InvalidInput."""
    text = headers.get(SESSION_HEADER, "")
    if text and (not text.isascii() or not text.isdecimal() or len(text) > _DIGITS):
        raise InvalidInput(f"header {SESSION_HEADER} must be a number, not {text[:20]!r}")
    return int(text or 0)


def check_caller(services: Services, who: Identity, agent: str, session: int) -> None:
    """Raises InvalidInput, Forbidden or Fenced."""
    check_agent_id(agent)
    who.may_be(agent)
    view = services.roster.view(agent)
    if services.settings.center.auth and not who.subject and view is not None and view.bound:
        raise Forbidden(f"agent {agent} has its own credential; use that one, not the shared token")
    services.roster.check_session(agent, session)


def check_agent(call: Call, agent: str) -> int:
    """Check the caller of a call; return its session."""
    session = session_in(call.headers)
    check_caller(call.services, call.who, agent, session)
    return session


def no_more(call: Call, agent: str, session: int) -> Callable[[], Awaitable[bool]]:
    """For a waiting call: a function that says whether its caller disconnected or lost access."""

    async def over() -> bool:
        if await call.gone():
            return True
        try:
            token = call.headers.get("authorization", "")
            who = await call.services.auth.identify(token, Role.AGENT)
            check_caller(call.services, who, agent, session)
        except Unavailable:
            return False
        except SkepError:
            return True
        return False

    return over


async def handed_out(call: Call, agent: str, session: int, blocks: list[Leased]) -> list[Leased]:
    """The blocks to send to an agent. When another process has become this agent meanwhile,
    takes the blocks back and raises Fenced: no process would work on them."""
    if not blocks or await call.services.roster.still(agent, session):
        return blocks
    held = [block.held for block in blocks]
    await call.services.leases.give_back(agent, held, "another process took over this agent")
    raise Fenced(f"agent {agent} has a newer process; this one is session {session}")
