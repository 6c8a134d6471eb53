"""Whether a changing call comes from a page of this portal. Pure.

The API is called in this process with the user's cookie, so the page checks what the API would
check for a browser. That an Origin names this host was checked by the center before.
"""

from __future__ import annotations

from collections.abc import Mapping

from skep.errors import Forbidden


def check_same_origin(headers: Mapping[str, str]) -> None:
    """Raises Forbidden unless the browser says that its own page sent the call."""
    site = headers.get("sec-fetch-site", "")
    if site == "same-origin" or (not site and headers.get("origin")):
        return
    raise Forbidden(
        "this form was not sent by a page of this center; open the page again and repeat the act"
    )
