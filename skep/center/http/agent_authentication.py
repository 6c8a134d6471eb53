"""The agents' door: is the caller who it says, and the newest process of it? Centers only.

The token says which agent a caller may be, the session which process of it. Answers come
from what this center saw last; where a block changes hands the store is asked.
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
    """0 for agents of before; raises InvalidInput."""
    text = headers.get(SESSION_HEADER, "")
    if text and (not text.isascii() or not text.isdecimal() or len(text) > _DIGITS):
        raise InvalidInput(f"{SESSION_HEADER} is a number, not {text[:20]!r}")
    return int(text or 0)


def check_caller(services: Services, who: Identity, agent: str, session: int) -> None:
    """Raises InvalidInput, Forbidden or Fenced."""
    check_agent_id(agent)
    who.may_be(agent)
    view = services.roster.view(agent)
    if services.settings.center.auth and not who.subject and view is not None and view.bound:
        raise Forbidden(f"agent {agent} has a credential of its own; the shared token is not it")
    services.roster.check_session(agent, session)


def check_agent(call: Call, agent: str) -> int:
    """The same for a call; returns its session."""
    session = session_in(call.headers)
    check_caller(call.services, call.who, agent, session)
    return session


def no_more(call: Call, agent: str, session: int) -> Callable[[], Awaitable[bool]]:
    """For a call that waits: has its caller hung up, or may it not have anything now?"""

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
    """Blocks on their way to an agent. Raises Fenced, and takes them back, when another
    process has become it meanwhile: they would rest in nobody's hands."""
    if not blocks or await call.services.roster.still(agent, session):
        return blocks
    held = [block.held for block in blocks]
    await call.services.leases.give_back(agent, held, "another process is this agent")
    raise Fenced(f"agent {agent} runs elsewhere by now; this process was session {session}")
