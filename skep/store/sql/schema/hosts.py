"""Tables of hosts: rules, counts, which block holds which host. Run by centers only."""

from __future__ import annotations

import sqlalchemy as sa

from skep.store.sql.schema.columns import (
    BigId,
    Seconds,
    metadata,
    name_of,
)

sites = sa.Table(
    "sites",
    metadata,
    sa.Column("host", name_of(255), primary_key=True),
    # The operator's rule; NULL = the default.
    sa.Column("rate", sa.Float(53), nullable=True),
    sa.Column("concurrency", sa.Integer, nullable=True),
    sa.Column("robots", sa.SmallInteger, nullable=True),
    # Values learnt from answers.
    sa.Column("delay", sa.Float(53), nullable=False),
    sa.Column("crawl_delay", sa.Float(53), nullable=False),
    sa.Column("not_before", Seconds, nullable=False),
    sa.Column("cooling_until", Seconds, nullable=False),
    sa.Column("reason", name_of(200), nullable=False),
    sa.Column("strikes", sa.Integer, nullable=False),
    # Counts.
    sa.Column("requests", sa.BigInteger, nullable=False),
    sa.Column("failed", sa.BigInteger, nullable=False),
    sa.Column("refused", sa.BigInteger, nullable=False),
    sa.Column("barred", sa.BigInteger, nullable=False),
    sa.Column("deferred", sa.BigInteger, nullable=False),
    sa.Column("received", sa.BigInteger, nullable=False),
    sa.Column("elapsed_us", sa.BigInteger, nullable=False),
    sa.Column("last_at", Seconds, nullable=False),
)


# A rate-limited host is in one open block at a time. A hold without a block was released: the
# dispatcher wakes requests that wait for the host and deletes the hold.
site_holds = sa.Table(
    "site_holds",
    metadata,
    sa.Column("host", name_of(255), primary_key=True),
    sa.Column("block", BigId, nullable=True, index=True),
    # With a block: when it should be done. Without: when the dispatcher checks the host.
    sa.Column("until", Seconds, nullable=False),
    # Seconds between two starts, used when no report gives the time of the next one.
    sa.Column("spacing", sa.Float(53), nullable=False),
)


# Failed attempts to fetch robots.txt: after some, a run fails its requests to the host.
host_probes = sa.Table(
    "host_probes",
    metadata,
    sa.Column("run", BigId, primary_key=True, autoincrement=False),
    sa.Column("host", name_of(255), primary_key=True),
    sa.Column("probes", sa.Integer, nullable=False),
    # Time of the last attempt; with `given_up`, of the last request that failed for it.
    sa.Column("at", Seconds, nullable=False),
    sa.Column("failure", name_of(16), nullable=False),
    sa.Column("detail", name_of(500), nullable=False),
    sa.Column("given_up", sa.SmallInteger, nullable=False),
    sa.Index("host_probes_host", "host"),
)
