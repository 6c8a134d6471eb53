"""An agent: leases blocks from a center, downloads them and reports. It only connects out.

Read it in the order of a block: `heartbeat` registers, `work/leasing` leases as many blocks as
`work/prefetch` decides, `work/held_blocks` holds them, `work/download_starter` starts them in the
downloaders of `work/run_downloaders`, `work/reporting` reports results, through the `work/outbox`
while no center answers. `app` assembles it. It never imports what only centers need.
"""
