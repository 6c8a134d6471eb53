"""What each list selects, in which order, and what its rows become. Run by centers only.

The key of a list is unique and in the order of an index, so that a page begins where the last
one ended without looking at what is before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.model.dispatch import DispatchRow
from skep.model.filter.facts import job_facts
from skep.store.sql.filters.record_facts import (
    alert_facts,
    delivery_facts,
    group_facts,
    host_facts,
    notice_facts,
    operation_facts,
    schedule_facts,
    session_facts,
    token_facts,
    user_facts,
)
from skep.store.sql.filters.search import Listing
from skep.store.sql.hosts.hosts import LISTED_HOSTS, host_in
from skep.store.sql.jobs.jobs import kept_job
from skep.store.sql.jobs.schedules import fire_in, planned_in
from skep.store.sql.monitoring.alert_states import alert_in
from skep.store.sql.monitoring.failure_groups import group_in
from skep.store.sql.operations.rows import operation_of
from skep.store.sql.people.audit import AUDIT_LISTING, audit_in
from skep.store.sql.people.sessions import session_in
from skep.store.sql.people.users import user_of
from skep.store.sql.records.deliveries import UNFINISHED, delivery_view
from skep.store.sql.records.notices import notice_in
from skep.store.sql.records.tokens import DRIVER, token_in
from skep.store.sql.requests.requests import view_of
from skep.store.sql.runs.runs import run_in
from skep.store.sql.schema.agents import tokens
from skep.store.sql.schema.blocks import blocks
from skep.store.sql.schema.deliveries import deliveries
from skep.store.sql.schema.dispatch_log import dispatch_log
from skep.store.sql.schema.ended_work import faults, notices
from skep.store.sql.schema.hosts import sites
from skep.store.sql.schema.jobs import jobs
from skep.store.sql.schema.monitoring import failure_groups
from skep.store.sql.schema.operations import operations
from skep.store.sql.schema.people import user_sessions, users
from skep.store.sql.schema.records import alerts
from skep.store.sql.schema.requests import requests
from skep.store.sql.schema.runs import runs
from skep.store.sql.schema.schedules import fires, schedules

#: Rows of one query whose documents are read.
MEMORY_STRETCH = 500


class SqlList(msgspec.Struct, frozen=True):
    """A list, and what a row of it becomes."""

    listing: Listing
    item: Callable[[Any], Any]
    #: Types of the key's values, to check a key that a caller sent.
    types: tuple[type, ...]
    #: Instead of `item`, when other tables are asked for each row.
    view: Callable[[sa.Connection, Any], Any] | None = None


def _select(*keys: sa.Column[Any]) -> sa.Select[Any]:
    """The keys first, then every column of their table."""
    table = keys[0].table
    return sa.select(*keys, *(column for column in table.c if column not in set(keys)))


_REQUESTS = (
    sa.select(requests, runs.c.id.label("run_id"), blocks.c.state.label("block_state"))
    .join(runs, runs.c.no == requests.c.run)
    .outerjoin(blocks, blocks.c.id == requests.c.block)
)
_GROUP = (failure_groups.c.last_at, failure_groups.c.fault, failure_groups.c.host)
_GROUPS = (
    _select(*_GROUP)
    .add_columns(faults.c.failure, faults.c.status, faults.c.text)
    .outerjoin(faults, faults.c.id == failure_groups.c.fault)
)
_SESSION = (user_sessions.c.created_at, user_sessions.c.digest)


def _facts(of: Callable[[Any], Mapping[str, object]], item: Callable[[Any], Any]) -> Any:
    return lambda row: of(item(row))


def _dispatch(row: Any) -> DispatchRow:
    return DispatchRow(**{column.name: getattr(row, column.name) for column in dispatch_log.c})


LISTS: dict[str, SqlList] = {
    "requests": SqlList(Listing(_REQUESTS, requests.c.id), view_of, (int,)),
    "runs": SqlList(
        Listing(_select(runs.c.created_at, runs.c.no), (runs.c.created_at, runs.c.no)),
        run_in,
        (float, int),
    ),
    "jobs": SqlList(
        Listing(
            _select(jobs.c.name),
            jobs.c.name,
            newest_first=False,
            facts=_facts(job_facts, kept_job),
            stretch=MEMORY_STRETCH,
            by_bytes=True,
        ),
        kept_job,
        (str,),
    ),
    "dispatches": SqlList(
        Listing(_select(dispatch_log.c.id), dispatch_log.c.id), _dispatch, (int,)
    ),
    "fires": SqlList(
        Listing(
            _select(fires.c.due_at, fires.c.job, fires.c.fire_key),
            (fires.c.due_at, fires.c.job, fires.c.fire_key),
        ),
        fire_in,
        (int, str, str),
    ),
    "alerts": SqlList(
        Listing(
            _select(alerts.c.last_at, alerts.c.kind, alerts.c.subject),
            (alerts.c.last_at, alerts.c.kind, alerts.c.subject),
            facts=_facts(alert_facts, alert_in),
        ),
        alert_in,
        (float, str, str),
    ),
    "hosts": SqlList(
        Listing(LISTED_HOSTS, sites.c.host, newest_first=False, facts=_facts(host_facts, host_in)),
        host_in,
        (str,),
    ),
    "tokens": SqlList(
        Listing(
            _select(tokens.c.created_at, tokens.c.digest),
            (tokens.c.created_at, tokens.c.digest),
            facts=_facts(token_facts, token_in),
            always=(tokens.c.role != DRIVER,),
        ),
        token_in,
        (float, bytes),
    ),
    "deliveries": SqlList(
        Listing(
            _select(deliveries.c.changed_at, deliveries.c.run, deliveries.c.sink),
            (deliveries.c.changed_at, deliveries.c.run, deliveries.c.sink),
            facts=delivery_facts,
            always=UNFINISHED,
        ),
        lambda row: row,
        (float, str, str),
        delivery_view,
    ),
    "notices": SqlList(
        Listing(
            _select(notices.c.created_at, notices.c.id),
            (notices.c.created_at, notices.c.id),
            facts=_facts(notice_facts, notice_in),
        ),
        notice_in,
        (float, str),
    ),
    "schedules": SqlList(
        Listing(
            _select(schedules.c.job),
            schedules.c.job,
            newest_first=False,
            facts=_facts(schedule_facts, planned_in),
        ),
        planned_in,
        (str,),
    ),
    "audit": SqlList(AUDIT_LISTING, audit_in, (int,)),
    "failure-groups": SqlList(
        Listing(_GROUPS, _GROUP, facts=_facts(group_facts, group_in)),
        group_in,
        (float, int, str),
    ),
    "operations": SqlList(
        Listing(
            _select(operations.c.no), operations.c.no, facts=_facts(operation_facts, operation_of)
        ),
        operation_of,
        (int,),
    ),
    "users": SqlList(
        Listing(
            _select(users.c.name),
            users.c.name,
            newest_first=False,
            facts=_facts(user_facts, user_of),
        ),
        user_of,
        (str,),
    ),
    "sessions": SqlList(
        Listing(_select(*_SESSION), _SESSION, facts=_facts(session_facts, session_in)),
        session_in,
        (float, bytes),
    ),
}
