"""The celery application that the workers load: no results, acknowledged early."""

from __future__ import annotations

import os

from celery import Celery  # type: ignore[import-not-found]  # lives in the peer's environment

from bench.peers import noop

app = Celery("bench", broker=os.environ["BENCH_BROKER"])
app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=64)
fetch = app.task(noop.fetch, name="fetch")
