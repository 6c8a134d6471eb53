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
    # The operator's rule; NULL leaves it to the defaults.
    sa.Column("rate", sa.Float(53), nullable=True),
    sa.Column("concurrency", sa.Integer, nullable=True),
    sa.Column("robots", sa.SmallInteger, nullable=True),
    # What was learnt.
    sa.Column("delay", sa.Float(53), nullable=False),
    sa.Column("crawl_delay", sa.Float(53), nullable=False),
    sa.Column("not_before", Seconds, nullable=False),
    sa.Column("cooling_until", Seconds, nullable=False),
    sa.Column("reason", name_of(200), nullable=False),
    sa.Column("strikes", sa.Integer, nullable=False),
    # What was done.
    sa.Column("requests", sa.BigInteger, nullable=False),
    sa.Column("failed", sa.BigInteger, nullable=False),
    sa.Column("refused", sa.BigInteger, nullable=False),
    sa.Column("barred", sa.BigInteger, nullable=False),
    sa.Column("deferred", sa.BigInteger, nullable=False),
    sa.Column("received", sa.BigInteger, nullable=False),
    sa.Column("elapsed_us", sa.BigInteger, nullable=False),
    sa.Column("last_at", Seconds, nullable=False),
)


# A host with a pace is in one open block at a time. A hold without a block was let go: the
# dispatcher wakes what waits for the host and forgets it.
site_holds = sa.Table(
    "site_holds",
    metadata,
    sa.Column("host", name_of(255), primary_key=True),
    sa.Column("block", BigId, nullable=True, index=True),
    # With a block: when it should be through. Without: when the dispatcher looks at it.
    sa.Column("until", Seconds, nullable=False),
    # Seconds between two starts, for when nobody says when the next is in order.
    sa.Column("spacing", sa.Float(53), nullable=False),
)


# Tries for robots.txt that failed: a run fails its requests to a host after some of them.
host_probes = sa.Table(
    "host_probes",
    metadata,
    sa.Column("run", BigId, primary_key=True, autoincrement=False),
    sa.Column("host", name_of(255), primary_key=True),
    sa.Column("probes", sa.Integer, nullable=False),
    # Of the last try; with `given_up`, of the last request that failed for it.
    sa.Column("at", Seconds, nullable=False),
    sa.Column("failure", name_of(16), nullable=False),
    sa.Column("detail", name_of(500), nullable=False),
    sa.Column("given_up", sa.SmallInteger, nullable=False),
    sa.Index("host_probes_host", "host"),
)
