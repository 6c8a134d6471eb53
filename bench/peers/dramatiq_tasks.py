"""The dramatiq actor that the workers load."""

from __future__ import annotations

import os

import dramatiq  # type: ignore[import-not-found]  # lives in the peer's environment
from dramatiq.brokers.redis import RedisBroker  # type: ignore[import-not-found]  # as above

from bench.peers import noop

broker = RedisBroker(url=os.environ["BENCH_BROKER"])
dramatiq.set_broker(broker)
fetch = dramatiq.actor(noop.fetch, actor_name="fetch")
