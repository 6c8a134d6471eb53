"""The endpoint to which agents send log lines. Run by centers.

An agent sends lines of its own sources only. Lines are on disk before the answer; a batch that is
refused does not hold up the others, and an agent over its rate is told to wait.
"""

from __future__ import annotations

from skep.center.http.agent_authentication import check_agent
from skep.center.http.endpoint import Call, for_agents
from skep.errors import (
    Forbidden,
    InvalidInput,
    StaleToken,
    TooLarge,
    Unavailable,
    UnknownAgent,
)
from skep.logs.center.intake import LogIntake
from skep.model.logs import LogBatch, LogSourceKind
from skep.wire.messages import LOG_BYTES, LogAnswer, LogLines, LogLinesReply

#: What agents write lines of.
_KINDS = frozenset({LogSourceKind.AGENT, LogSourceKind.DOWNLOADER, LogSourceKind.APP})


async def log_lines(call: Call) -> LogLinesReply:
    """Store lines of an agent."""
    message: LogLines = call.body
    services, agent = call.services, message.agent
    check_agent(call, agent)
    if not await services.roster.known(agent):
        raise UnknownAgent(f"agent {agent} is not registered; call /node/register first")
    if not services.settings.logs.store:
        raise Unavailable("this center stores no log lines (logs.store is false)")
    for batch in message.batches:
        _check_source(batch, agent)
    size = sum(len(batch.lines) for batch in message.batches)
    if size > LOG_BYTES:
        raise TooLarge(f"{size} bytes of log lines in one call; send {LOG_BYTES} at most")
    services.logs.note_dropped(agent, message.dropped)
    return LogLinesReply([await _taken(services.logs.intake, one) for one in message.batches])


def _check_source(batch: LogBatch, agent: str) -> None:
    source = batch.source
    if source.agent != agent or (source.kind is LogSourceKind.AGENT and source.name != agent):
        raise Forbidden(f"agent {agent} may not send lines of {source.name!r} of {source.agent!r}")
    if source.kind not in _KINDS:
        raise Forbidden(f"agents have no lines of kind {source.kind}; send agent, downloader, app")


async def _taken(intake: LogIntake, batch: LogBatch) -> LogAnswer:
    try:
        taken = await intake.take(batch)
    except (StaleToken, InvalidInput) as error:
        return LogAnswer(batch.first, refused=error.detail)
    return LogAnswer(taken.next, taken.wait)


ENDPOINTS = (
    for_agents(
        "send_log_lines",
        "logs",
        log_lines,
        "Send log lines",
        LogLines,
        LogLinesReply,
        Forbidden,
        TooLarge,
        UnknownAgent,
        Unavailable,
        example={
            "agent": "attic",
            "batches": [
                {
                    "source": {"kind": "agent", "name": "attic", "agent": "attic"},
                    "token": 1,
                    "first": 0,
                    "lines": "eyJ0aW1lIjoxNzY3MjI1NjAwLjAsImxldmVsIjoyMCwidGV4dCI6ImJlZ3VuIn0=",
                }
            ],
        },
    ),
)
