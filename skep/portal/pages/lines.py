"""Log lines for the log view of any page: older ones by cursor, new ones as they arrive."""

from __future__ import annotations

import msgspec

from skep.portal.page import Data, Outcome, Page, PageCall
from skep.portal.show.logs import new_lines, shown_log
from skep.wire.api.monitoring.logs import WhichLines, WhichNewLines

#: Lines of one answer, and seconds that a call waits for new ones.
LINES, WAIT = 1000, 20.0


async def show(call: PageCall) -> Outcome:
    """`?filter=&cursor=` for older lines, `?filter=&position=` for new ones."""
    wanted, position = call.query.get("filter", ""), call.query.get("position", "")
    if position.isdecimal():
        asks = WhichNewLines(wanted, position=int(position[:18]), wait=WAIT)
        return _told(new_lines(await call.api.logs.follow(asks), wanted))
    asks_older = WhichLines(wanted, cursor=call.query.get("cursor", ""), limit=LINES)
    return _told(shown_log(await call.api.logs.search(asks_older), wanted))


def _told(found: object) -> Data:
    return Data(msgspec.to_builtins(found))


PAGES = (Page("lines", "/lines", show),)
