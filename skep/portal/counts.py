"""The numbers of the side bar, for the module that shows them. Each page counts for itself."""

from __future__ import annotations

from collections.abc import Sequence

from skep.portal.page import Data, NavCount, Outcome, Page, PageCall
from skep.portal.panels import Refused, parts


def counts_page(pages: Sequence[Page]) -> Page:
    """The page with the numbers of all the others; what the caller may not read is left out."""
    counting = {page.name: page.count for page in pages if page.count is not None}

    async def show(call: PageCall) -> Outcome:
        found = await parts(**{name: count(call) for name, count in counting.items()})
        return Data({name: _shown(one) for name, one in found.items() if _is_number(one)})

    return Page("counts", "/counts", show)


def _is_number(one: NavCount | Refused) -> bool:
    return not isinstance(one, Refused) and one.number is not None


def _shown(one: NavCount) -> dict[str, str]:
    return {"text": f"{one.number:,}", "look": one.look if one.number else ""}
