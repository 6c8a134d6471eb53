"""The list of all pages. A new page is one line here, one file in `pages`, a template and texts."""

from __future__ import annotations

from skep.portal.counts import counts_page
from skep.portal.page import Page
from skep.portal.pages import (
    archive,
    bulk,
    complete,
    data,
    failures,
    find,
    jobs,
    lines,
    login,
    operation,
    overview,
    preferences,
    request,
    requests,
    run,
    runs,
    views,
)
from skep.portal.pages.fleet import add_agent, agent, agents, host, lanes, placement
from skep.portal.pages.fleet import hosts as fleet_hosts
from skep.portal.pages.operate import alert_rules, alerts, logs, operations
from skep.portal.pages.settings import groups, hosts, notices, retention, tokens, users
from skep.portal.pages.system import audit, health, storage
from skep.portal.pages.work import apps, compare, job, job_editor, schedules


def pages() -> tuple[Page, ...]:
    """Every page, in any order: the side bar sorts by place."""
    shown = (
        *overview.PAGES,
        *jobs.PAGES,
        *job.PAGES,
        *job_editor.PAGES,
        *schedules.PAGES,
        *apps.PAGES,
        *compare.PAGES,
        *runs.PAGES,
        *run.PAGES,
        *agents.PAGES,
        *add_agent.PAGES,
        *agent.PAGES,
        *lanes.PAGES,
        *fleet_hosts.PAGES,
        *host.PAGES,
        *placement.PAGES,
        *requests.PAGES,
        *request.PAGES,
        *failures.PAGES,
        *data.PAGES,
        *archive.PAGES,
        *logs.PAGES,
        *alerts.PAGES,
        *alert_rules.PAGES,
        *operations.PAGES,
        *operation.PAGES,
        *users.PAGES,
        *groups.PAGES,
        *tokens.PAGES,
        *hosts.PAGES,
        *notices.PAGES,
        *retention.PAGES,
        *health.PAGES,
        *storage.PAGES,
        *audit.PAGES,
        *bulk.PAGES,
        *login.PAGES,
        *preferences.PAGES,
        *complete.PAGES,
        *find.PAGES,
        *lines.PAGES,
        *views.PAGES,
    )
    return (*shown, counts_page(shown))
