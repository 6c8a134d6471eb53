"""The settings `sites.*`. Pure data."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from skep.settings.section import Section


class SiteSettings(Section, frozen=True):
    """How hosts are treated, over all agents and runs. Loopback and private addresses have no
    rate limit and no robots.txt check unless a rule names them (`skep sites`)."""

    rate: Annotated[float, Meta(ge=0, description="Requests/second to one host; 0 = any.")] = 2.0
    concurrency: Annotated[
        int, Meta(ge=1, le=1000, description="Maximum parallel downloads from one host.")
    ] = 4
    robots: Annotated[bool, Meta(description="Obey robots.txt.")] = True
    robots_probes: Annotated[
        int,
        Meta(
            ge=1,
            le=1000,
            description="Attempts of one run to reach a host, or its robots.txt, that does not "
            "answer; then the requests of the run to this host fail.",
        ),
    ] = 3
    adaptive: Annotated[bool, Meta(description="Slow down when a host is slow or refuses.")] = True
    window: Annotated[
        float, Meta(gt=0, le=600, description="Seconds of work for one host in one block.")
    ] = 10.0
    crawl_delay_cap: Annotated[
        float, Meta(ge=0, description="Maximum Crawl-delay that is obeyed, in seconds.")
    ] = 300.0
    cooling_first: Annotated[
        float, Meta(gt=0, description="Seconds to pause a host that refuses without Retry-After.")
    ] = 30.0
    cooling_cap: Annotated[
        float, Meta(gt=0, description="Maximum pause, in seconds; each refused probe doubles it.")
    ] = 3600.0
    breaker_after: Annotated[
        int, Meta(ge=1, description="Consecutive failed downloads after which a host is paused.")
    ] = 5
