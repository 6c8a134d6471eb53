"""Values of the examples in the API's description. Pure data.

Request bodies are listed by operation id, and tests send them to a center. Answers are generated
from their schemas with the values of `FIELDS`, so a new field needs no entry here.
"""

from __future__ import annotations

from typing import Any

#: 2026-01-01T00:00:00Z, and an hour later.
NEW_YEAR = 1767225600.0
LATER = NEW_YEAR + 3600.0
URL = "https://example.org/"
GROUP = "0a1b2c3d4e5f@example.org"
_FILTER: dict[str, Any] = {"filter": {"run": "books", "failure": "timeout"}, "dry_run": True}

#: Path parameters by name.
PATHS: dict[str, Any] = {
    "agent": "attic",
    "block": 1,
    "digest": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "group": GROUP,
    "host": "example.org",
    "identity": "books",
    "job": "books",
    "no": 0,
    "request": 1,
    "run": "books",
    "token_id": "0123456789abcdef",
}

#: Query parameters by "operation id.name"; others show their default.
QUERIES: dict[str, Any] = {
    "preview_placement.add": "cellar",
    "list_jobs.after": "authors",
    "list_requests.state": "dead",
    "list_failures.run": "books",
    "compare_job_revisions.old": 0,
    "compare_job_revisions.new": 1,
}

#: Bodies by operation id.
BODIES: dict[str, Any] = {
    "register_agent": {"registration": {"id": "attic", "name": "attic", "cpus": 4}},
    "send_heartbeat": {"agent": "attic", "vitals": {"cpu": 0.25, "active": 3}, "holding": [[1, 1]]},
    "lease_blocks": {"agent": "attic", "want": 4, "wait": 0.0, "kinds": ["http"]},
    "report_blocks": {"agent": "attic", "blocks": [[1, 1, [[1, "", 200, "", 52000]], True]]},
    "return_blocks": {"agent": "attic", "blocks": [[1, 1]], "reason": "the agent is draining"},
    "report_instances": {"agent": "attic", "instances": []},
    "send_instance_log": {
        "agent": "attic",
        "run": "ticker",
        "no": 0,
        "token": 1,
        "offset": 0,
        "data": "c3RhcnRlZAo=",
    },
    "join_agent": {"agent": "attic", "digest": "n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg="},
    "add_requests": [URL, {"uri": f"{URL}a", "meta": {"page": 2}}],
    "submit_requests": [URL, {"uri": f"{URL}a", "meta": {"page": 2}}],
    "mark_blocks_collected": {"blocks": [1]},
    "start_driver": {"job": "books", "settings": {"retries": 2}, "patience": 60.0},
    "read_ended_requests": {"limit": 8, "wait": 0.0, "bodies": False},
    "save_checkpoint": {
        "driver": 1,
        "blocks": [1],
        "items": [[1, 0, {"title": "A book"}]],
        "requests": [{"uri": f"{URL}next"}],
    },
    "end_driver": {"driver": 1, "state": "finished", "reason": "all pages were read"},
    "open_run": {"settings": {"retries": 3, "priority": 2}},
    "retry_rejected_items": {"numbers": [1, 2]},
    "set_job": {"requests": [URL], "settings": {"retries": 2}, "schedule": {"every": 3600}},
    "cancel_requests": {"filter": {"run": "books", "state": "waiting"}, "dry_run": True},
    "retry_failures": _FILTER,
    "cancel_failures": _FILTER,
    "delete_failures": _FILTER,
    "dispatch_blocks": {"dry_run": True},
    "set_agent_labels": {"labels": {"site": "berlin", "old": None}},
    "create_token": {"role": "viewer", "name": "dashboard", "seconds": 86400.0},
    "create_join_token": {"agent": "attic", "group": "home", "seconds": 3600.0},
    "create_agent_token": {"agent": "attic"},
    "set_site": {"rate": 0.5, "concurrency": 2},
}

#: Answers that are not JSON messages, by operation id.
RAW: dict[str, Any] = {
    "get_metrics": "skep_accepted_total 2.0\n",
    "get_openapi": {"openapi": "3.1.0", "info": {"title": "Skep", "version": "1.0"}, "paths": {}},
    "get_docs": "<!doctype html><html><body></body></html>",
    "get_package": "PK",
    "get_request_body": "<!doctype html><title>Example</title>",
    "get_request_record": "WARC/1.1",
}

#: Values of fields in answers, by "Type.field" or by name where they fit the schema.
FIELDS: dict[str, Any] = {
    "accepted": 2,
    "address": "192.0.2.10",
    "agent": "attic",
    "alive": True,
    "at": NEW_YEAR,
    "attempts": 1,
    "center": "main",
    "before": int(LATER),
    "changed_at": LATER,
    "created_at": NEW_YEAR,
    "detail": "no answer within 120 s",
    "done": 2,
    "due_at": int(LATER),
    "enabled": True,
    "elapsed_us": 52000,
    "failure": "timeout",
    "final_uri": URL,
    "first_at": NEW_YEAR,
    "folder": "data",
    "free": 10 * 2**30,
    "group": "default",
    "host": "example.org",
    "id": 1,
    "job": "books",
    "last_at": LATER,
    "last_beat_age": 1.5,
    "made_at": NEW_YEAR,
    "name": "attic",
    "new": 2,
    "number": 1,
    "registered_at": NEW_YEAR,
    "request": 1,
    "requests": 2,
    "revision": 1,
    "role": "viewer",
    "run": "books",
    "seen_at": LATER,
    "since": NEW_YEAR,
    "state": "running",
    "size": 2,
    "status": 200,
    "token": 1,
    "total": 2,
    "until": LATER,
    "uri": URL,
    "version": "1.0",
    "Alerts.items": [{"at": NEW_YEAR, "kind": "disk", "subject": "main", "detail": "low space"}],
    "Attempt.detail": "",
    "Attempt.failure": "",
    "Check.detail": "",
    "Check.name": "store",
    "Check.ok": True,
    "DeadRequest.group": GROUP,
    "DeadRequest.status": 0,
    "Diff.diff": "-retries: 2\n+retries: 3\n",
    "FailureGroup.group": GROUP,
    "FailureGroup.status": 0,
    "FailureGroup.text": "no answer within N s",
    "FinishedRequest.detail": "",
    "FinishedRequest.failure": "",
    "FinishedRequest.state": "done",
    "IssuedToken.id": "0123456789abcdef",
    "IssuedToken.token": "example-token",
    "Item.data": {"title": "A book"},
    "LaneLine.lane": "mid",
    "LaneLine.limit": 100_000,
    "LedgerView.line": "2 accepted = 2 done",
    "LogText.text": "started\n",
    "Page.detail": "",
    "Page.failure": "",
    "Page.state": "done",
    "NoticeLine.id": "books-finished-1",
    "Placement.group": "",
    "Ready.status": "ok",
    "Reason.code": "no_agent",
    "Reason.text": "no agent is there that may take the requests",
    "Registration.id": "attic",
    "RequestLine.state": "done",
    "Run.id": "books",
    "TokenLine.state": "live",
    "TokenView.id": "0123456789abcdef",
    "Why.id": "books",
    "Why.kind": "run",
    "Why.state": "running",
}
