"""The settings `logs.*`. Pure data."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from skep.settings.section import Section


class LogSettings(Section, frozen=True):
    """Log lines of all processes: what is stored of them, and where they are exported to."""

    store: Annotated[bool, Meta(description="Store the log lines of all processes.")] = True
    bytes: Annotated[int, Meta(ge=0, description="Limit of stored lines; the oldest go first.")] = (
        2 * 2**30
    )
    agent_bytes: Annotated[int, Meta(ge=0, description="Limit of the lines of one agent.")] = 2**29
    age: Annotated[float, Meta(gt=0, description="Seconds for which lines are stored.")] = (
        30 * 86_400.0
    )
    agent_rate: Annotated[
        int, Meta(gt=0, description="Bytes per second that one agent may send; the rest waits.")
    ] = 2 * 2**20
    agent_burst: Annotated[int, Meta(gt=0, description="Bytes an agent may send at once.")] = 2**25
    spool_bytes: Annotated[int, Meta(gt=0, description="Disk space of an agent for lines.")] = 2**28
    source_bytes: Annotated[
        int, Meta(gt=0, description="The same for one of its sources; the oldest lines go first.")
    ] = 16 * 2**20
    export: Annotated[
        str, Meta(description="Write each line as JSON to `stdout` or to this file; empty = no.")
    ] = ""
    forward: Annotated[
        str,
        Meta(
            description="Send each line to this Elasticsearch or OpenSearch: http://host:9200/INDEX."
        ),
    ] = ""
    export_bytes: Annotated[
        int, Meta(gt=0, description="Bytes of the export file, over which it is rotated.")
    ] = 64 * 2**20
    export_files: Annotated[int, Meta(ge=1, le=1000, description="Number of files kept.")] = 5
