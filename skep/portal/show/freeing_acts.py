"""The act that ends a wait, as a button: from the commands that a reason names. Pure.

The API says what to type; where the portal has the same act, the page offers it. A command that
has no counterpart here stays text to copy.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from urllib.parse import quote

from skep.portal.show.acts import Act


def _post(area: str, verb: str, key: str) -> Callable[[str], Act]:
    def act(name: str) -> Act:
        return Act(key, f"/{area}/{quote(name, safe='')}/{verb}")

    return act


#: Words of a command before the name -> the act.
_KNOWN: dict[tuple[str, ...], Callable[[str], Act]] = {
    ("runs", "continue"): _post("runs", "continue", "run.act_continue"),
    ("runs", "revive"): _post("runs", "revive", "parts.act_revive"),
    ("job", "run"): _post("jobs", "run", "parts.act_run"),
    ("job", "enable"): _post("jobs", "enable", "acts.jobs_enable"),
    ("sites", "clear"): _post("hosts", "clear", "host.act_clear"),
    ("job", "resume"): _post("jobs", "resume", "parts.act_resume"),
}


def act_of(line: str) -> Act | None:
    """The act of a command such as `skep runs continue NAME`; None = there is none."""
    try:
        words = shlex.split(line)
    except ValueError:
        return None
    if len(words) != 4 or words[0] != "skep":  # noqa: PLR2004
        return None
    make = _KNOWN.get((words[1], words[2]))
    return None if make is None else make(words[3])
