"""Content rules: which parts of a page agents send to the center. Pure data; sent with a run.

An agent applies the steps in order, each to the result of the step before. Opening a run
checks that they can be carried out (`skep.jobs.request_validation`).
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

#: Maximum length of a selector or pattern, in characters.
EXPRESSION_LIMIT = 2000
STEP_LIMIT = 10

Expression = Annotated[str, Meta(max_length=EXPRESSION_LIMIT)]


class ContentStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step; exactly one of the fields is set."""

    #: Elements, texts (`h1::text`) or attributes (`a::attr(href)`), one match per line.
    css: Expression = ""
    #: The same by XPath 1.0.
    xpath: Expression = ""
    #: Values of a JSON document, as a JSON list.
    jsonpath: Expression = ""
    #: Matches of a Python regular expression, or its groups where it has any.
    regex: Expression = ""
    #: Number of bytes from the start.
    first: Annotated[int, Meta(ge=0, le=2**32)] = 0

    @property
    def kind(self) -> str:
        """The name of the field that is set; "" when none or several are set."""
        chosen = [name for name in self.__struct_fields__ if getattr(self, name)]
        return chosen[0] if len(chosen) == 1 else ""

    def __str__(self) -> str:
        return f"{self.kind}={getattr(self, self.kind)}" if self.kind else "nothing"


class ContentRules(msgspec.Struct, frozen=True, omit_defaults=True):
    """What agents send back of each page that was downloaded successfully."""

    steps: Annotated[tuple[ContentStep, ...], Meta(max_length=STEP_LIMIT)] = ()
    #: When a step finds nothing: keep nothing, keep the whole page, or fail as `content`.
    unmatched: Literal["nothing", "all", "fail"] = "nothing"
    #: Maximum bytes kept of one page, failed pages included; 0 = no limit.
    max_bytes: Annotated[int, Meta(ge=0, le=2**32)] = 0
    #: When the page is larger: cut the rest off, or fail as `limit`.
    over: Literal["cut", "fail"] = "cut"
    #: Processor seconds for one page; a page that takes longer fails as `limit`.
    seconds: Annotated[float, Meta(gt=0, le=60)] = 5.0

    @property
    def stops_at(self) -> int:
        """Bytes after which the download of a body can stop; 0 = all bytes are needed."""
        return self.steps[0].first if self.steps else 0
