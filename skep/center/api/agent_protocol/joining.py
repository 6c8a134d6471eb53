"""Joins a machine as an agent: one call, with a token that is valid once.

The agent has created its own secret and sends only the digest, so the answer contains nothing
that could be stolen, and a machine whose answer was lost can repeat the call.
"""

from __future__ import annotations

from skep import __version__
from skep.center.http.authentication import Role, check_agent_id, digest_of
from skep.center.http.endpoint import Call, Endpoint
from skep.errors import Conflict, InvalidInput, OldProtocol
from skep.model.fleet.agent import machine_of
from skep.model.fleet.placement import own_target
from skep.wire.api.route import Route
from skep.wire.messages import OLDEST_PROTOCOL, PROTOCOL, Join, Joined


async def join(call: Call) -> Joined:
    """Consume the token and accept the credential."""
    message: Join = call.body
    if not OLDEST_PROTOCOL <= message.protocol <= PROTOCOL:
        raise OldProtocol(f"protocol {message.protocol} is not supported; upgrade the agent")
    check_agent_id(message.agent)
    call.audit.object = f"agent:{message.agent}"
    if machine_of(message.agent) != message.agent:
        raise InvalidInput(
            f"{message.agent!r} names one of several processes; choose an id that does not end with"
            " a dot and a number"
        )
    if not own_target(message.agent):
        raise InvalidInput(f"{message.agent!r} is ambiguous with a run; choose another id")
    services = call.services
    token = call.headers.get("authorization", "").partition(" ")[2].strip()
    grant = await services.store.tokens.join(
        digest_of(token), message.agent, message.digest, services.clock.now(), dry=message.dry
    )
    return Joined(message.agent, services.name, __version__, grant)


ENDPOINTS = (
    Endpoint(
        Route(
            "join_agent",
            "POST",
            "/node/join",
            Joined,
            Join,
            example={"agent": "attic", "digest": "n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg="},
        ),
        Role.JOIN,
        join,
        "Join as a new agent",
        errors=(InvalidInput, OldProtocol, Conflict),
        tag="agents",
        notes="Needs a one-time token. `digest` is the SHA-256 of a secret that the agent has"
        " created, base64 in JSON; the secret is its token from then on.",
    ),
)
