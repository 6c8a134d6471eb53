"""A seeded simulation of several centers and agents in one thread.

The real rooms (`jobs`, `lanes`, `placement`, the SQL store, the memory bus, an agent's
`HeldBlocks`) run on virtual time while a random generator kills centers during their work,
freezes and kills agents, flushes the bus and loses, doubles and delays messages. After every step
the ledger must add up, counted in two ways. A seed can be replayed exactly:

    python -m skep.testing.simulation --seed 42

`simulation.runs` does the same for runs of jobs with spiders, allocations and sinks, on an event
loop with virtual time; `simulation.schedules` for due times.
"""
