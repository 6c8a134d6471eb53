"""A seeded simulation of several centers and agents in one thread.

The real rooms (`jobs`, `lanes`, `placement`, the SQL store, the memory bus, an agent's
`Holding`) run on virtual time while a random generator kills centers in the middle of
their work, freezes and kills agents, flushes the bus and loses, doubles and delays
messages. After every step the ledger must add up, twice. A seed replays exactly:

    python -m skep.testing.simulation --seed 42

`simulation.runs` does the same for runs of jobs with spiders, allocations and sinks, on an event
loop with virtual time; `simulation.schedules` for due times.
"""
