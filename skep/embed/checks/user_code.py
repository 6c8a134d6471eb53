"""`skep doctor`: user code on this machine. It changes nothing.

Run by the command line, as the current user; results can differ for agents of other users.
"""

from __future__ import annotations

from skep.embed.checks.finding import Finding
from skep.settings import AgentSettings

FIX = "install bubblewrap and allow user namespaces, or set agent.code to `never`"


def user_code(settings: AgentSettings) -> Finding:
    """The isolation in use; a problem only if code runs without a sandbox."""
    from skep.downloaders.code.isolation import detect
    from skep.downloaders.registry import code_refusal

    if settings.code == "never":
        return Finding("user code", True, "not offered here: agent.code is `never`")
    isolation = detect()
    if reason := code_refusal(settings, isolation):
        return Finding("user code", True, f"not offered here: {reason}")
    return Finding("user code", isolation.boxed, isolation.describe(), FIX)
