"""Texts in the languages that the API's description names as `format`; schemathesis loads it.

A format that is not registered here would be fuzzed with arbitrary text.
"""

from __future__ import annotations

import schemathesis
from hypothesis import strategies as st

WORDS = st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=12)
FILTERS = st.lists(WORDS.map('"{}"'.format) | WORDS.map('-"{}"'.format), max_size=4).map(" ".join)
LISTS = st.sampled_from(["runs", "jobs", "agents", "requests", "operations"])

schemathesis.openapi.format("skep-filter", FILTERS)
schemathesis.openapi.format("skep-watch", LISTS)
schemathesis.openapi.format("skep-cursor", st.just(""))
schemathesis.openapi.format("skep-agent", st.just("") | WORDS)
schemathesis.openapi.format("re2", WORDS)
schemathesis.openapi.format("json", st.just("{}"))
