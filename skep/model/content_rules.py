"""Content rules: what of a page goes back to the center. Pure data; travels with a run.

An agent applies the steps in their order, each to what the step before it kept. Whether
they can be followed is checked when the run is opened (`skep.jobs.request_validation`).
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

#: Longest selector or pattern, in characters.
EXPRESSION_LIMIT = 2000
STEP_LIMIT = 10

Expression = Annotated[str, Meta(max_length=EXPRESSION_LIMIT)]


class ContentStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """One cut; exactly one of the fields says how."""

    #: Elements, texts (`h1::text`) or attributes (`a::attr(href)`), one match in a line.
    css: Expression = ""
    #: The same by XPath 1.0.
    xpath: Expression = ""
    #: Values of a JSON document, as a JSON list.
    jsonpath: Expression = ""
    #: Matches of a Python regular expression, or its groups where it has any.
    regex: Expression = ""
    #: So many bytes from the start.
    first: Annotated[int, Meta(ge=0, le=2**32)] = 0

    @property
    def kind(self) -> str:
        """The name of the one field that is set; "" when it is none or several."""
        chosen = [name for name in self.__struct_fields__ if getattr(self, name)]
        return chosen[0] if len(chosen) == 1 else ""

    def __str__(self) -> str:
        return f"{self.kind}={getattr(self, self.kind)}" if self.kind else "nothing"


class ContentRules(msgspec.Struct, frozen=True, omit_defaults=True):
    """What agents send back of each page that was downloaded well."""

    steps: Annotated[tuple[ContentStep, ...], Meta(max_length=STEP_LIMIT)] = ()
    #: When a step finds nothing: keep nothing, keep the whole page, or fail as `content`.
    unmatched: Literal["nothing", "all", "fail"] = "nothing"
    #: Most bytes that are kept of one page, failed ones included; 0 = no limit.
    max_bytes: Annotated[int, Meta(ge=0, le=2**32)] = 0
    #: When more is left: cut the rest off, or fail as `limit`.
    over: Literal["cut", "fail"] = "cut"
    #: Processor seconds for one page; a page that takes longer fails as `limit`.
    seconds: Annotated[float, Meta(gt=0, le=60)] = 5.0

    @property
    def stops_at(self) -> int:
        """Bytes after which the rest of a body need not even be downloaded; 0 = all of it."""
        return self.steps[0].first if self.steps else 0
