"""What filters see of records that are searched in memory: hosts, tokens, deliveries and so on.

Their tables are small, or are seldom searched by anything but their key. Run by centers only.
"""

from __future__ import annotations

from typing import Any

from skep.model.fleet.token import TokenView
from skep.model.jobs.fire import Planned
from skep.model.jobs.notice import Notice
from skep.model.monitoring.alerts import Alert
from skep.model.monitoring.failure_groups import KeptGroup
from skep.model.operations import Operation
from skep.model.people.user import SessionView, User
from skep.store.ports.hosts import HostRow

Facts = dict[str, object]


def alert_facts(alert: Alert) -> Facts:
    """An alert; its state as stored, `firing` or `resolved`."""
    return {
        "kind": alert.kind,
        "subject": alert.subject,
        "detail": alert.detail,
        "times": alert.times,
        "state": alert.state,
        "first": alert.first_at,
        "last": alert.last_at,
    }


def host_facts(row: HostRow) -> Facts:
    """A host with its counts."""
    return {
        "host": row.site.host,
        "reason": row.site.reason,
        "requests": row.requests,
        "failed": row.failed,
        "refused": row.refused,
        "size": row.received,
        "run": row.run,
        "agent": row.agent,
        "last": row.last_at,
    }


def token_facts(view: TokenView) -> Facts:
    """A token; never the token itself."""
    return {
        "id": view.id,
        "role": view.role,
        "subject": view.subject,
        "name": view.note,
        "used": view.used_by,
        "created": view.created_at,
        "expires": view.expires_at,
    }


def delivery_facts(row: Any) -> Facts:
    """A row of `deliveries`."""
    return {
        "run": row.run,
        "job": row.job,
        "sink": row.sink,
        "error": row.error,
        "tries": row.tries,
        "changed": row.changed_at,
    }


def notice_facts(notice: Notice) -> Facts:
    """A notice; its target is not searched, as it can contain a secret."""
    return {
        "run": notice.run,
        "job": notice.job,
        "kind": notice.kind,
        "state": notice.state.replace(" ", "-"),
        "error": notice.error,
        "tries": notice.tries,
        "created": notice.created_at,
    }


def schedule_facts(planned: Planned) -> Facts:
    """A schedule of a job."""
    return {"job": planned.job, "next": planned.next_at}


def group_facts(group: KeptGroup) -> Facts:
    """A failure group."""
    return {
        "group": group.group,
        "host": group.host,
        "error": group.failure,
        "status": group.status or None,
        "text": group.text,
        "state": group.state,
        "dead": group.dead,
        "died": group.died,
        "note": group.note,
        "first": group.first_at,
        "last": group.last_at,
    }


def operation_facts(operation: Operation) -> Facts:
    """A bulk operation."""
    return {
        "id": operation.id,
        "state": operation.state.value,
        "resource": operation.asked.resource,
        "act": operation.asked.act,
        "user": operation.asked.creator,
        "matched": operation.matched,
        "error": operation.error,
        "created": operation.created_at,
    }


def user_facts(user: User) -> Facts:
    """A user; nothing about the password."""
    return {
        "name": user.name,
        "role": user.role,
        "state": "disabled" if user.disabled else "enabled",
        "group": user.groups,
        "created": user.created_at,
        "login": user.login_at,
    }


def session_facts(view: SessionView) -> Facts:
    """A session; nothing that could be used to log in."""
    return {
        "id": view.id,
        "user": view.user,
        "address": view.address,
        "client": view.client,
        "method": view.method,
        "created": view.created_at,
        "seen": view.seen_at,
    }
