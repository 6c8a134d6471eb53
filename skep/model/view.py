"""A saved view: the filter of a list under a name. Pure data, for centers and the command line."""

from __future__ import annotations

import msgspec

#: Views of one owner.
VIEWS_LIMIT = 200
VIEW_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"


class View(msgspec.Struct, frozen=True):
    """Private to its owner, or shared with everyone who may use the center."""

    #: Unique among the views of its owner.
    name: str
    #: The list that it filters, such as `runs`.
    resource: str
    #: The filter, as it was saved.
    filter: str
    #: User or token that saved it; the role of a token without a name.
    owner: str
    #: Everyone who may use the center sees it.
    shared: bool = False
    changed_at: float = 0.0
