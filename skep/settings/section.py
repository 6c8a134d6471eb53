"""The base of all groups of settings. Pure data, for every process."""

from __future__ import annotations

import msgspec

#: Pattern of an HTTP address with an optional path; empty = not set.
URL = r"^(https?://[^/?#\s@]+(/[A-Za-z0-9._~-]+)*/?)?$"


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One group of settings; a field's documentation is the `description` of its type."""
