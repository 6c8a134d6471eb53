"""Tags and path parameters of the API's description. Pure data.

A new tag or a new path parameter of the endpoint table needs its text here.
"""

from __future__ import annotations

#: Every tag of the table, in the order in which documentation lists them.
TAGS = {
    "runs": "Open runs, submit requests, read pages and items, pause, finish and cancel.",
    "jobs": "Job documents, their revisions, schedules and runs.",
    "requests": "Single requests and blocks: state, attempts, archived bodies and records.",
    "failures": "Dead requests grouped by failure; retry, cancel or delete them.",
    "operations": "One act on everything that a filter matches: dry run, progress, results.",
    "deliveries": "Delivery of items to sinks, and items that a sink refused.",
    "apps": "Instances of applications and their logs.",
    "sites": "Hosts and the rules that requests to them follow.",
    "agents": "Agents: state and commands; below `/node`, the protocol that agents use.",
    "placement": "Which agents may work for a run, and why others may not.",
    "dispatches": "The log of dispatched blocks, and manual dispatch rounds.",
    "why": "Explanations of what a request, block, run, job or host waits for.",
    "events": "Live updates: lists and objects as a stream of server-sent events.",
    "monitoring": "Figures over time, and alert rules over them.",
    "logs": "Log lines of all processes: search, follow, context, download, budgets.",
    "views": "Filters of lists that are saved under names.",
    "storage": "Disk space, retention and the outbox of notices.",
    "center": "The ledger, lanes, self-check and alerts of the center.",
    "secrets": "Stored secrets: set, list without values, rotate the key, delete.",
    "tokens": "Tokens of people, programs and agents.",
    "users": "Users, groups, logins and sessions.",
    "health": "Health, version, metrics and this description; no token is needed.",
}

#: Path parameters by name; a description in the parameter's schema takes precedence.
PATH_PARAMETERS = {
    "agent": "Id or name of the agent.",
    "block": "Id of the block.",
    "digest": "SHA-256 of the package, in hexadecimal.",
    "group": "Key of the group, as the list of failures shows it.",
    "host": "Name or address of the host as in a URL; IPv6 in brackets.",
    "identity": "Name of the run.",
    "job": "Name of the job.",
    "no": "Number of the instance, from 0.",
    "operation": "Number of the operation.",
    "request": "Id of the request.",
    "rule": "Name of the alert rule.",
    "run": "Name of the run.",
    "secret": "Name of the secret.",
    "token_id": "Id of the token, as the list of tokens shows it; not the token itself.",
    "session": "Id of the session, as the list of sessions shows it; not its secret.",
    "user": "Name of the user.",
    "user_group": "Name of the group of users.",
    "view": "Name of the view.",
    "verb": "The action.",
}
