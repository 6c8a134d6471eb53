"""An agent: leases blocks from a center, downloads them and reports. It only dials out.

Read in the order of a block's way: `heart` registers and beats, `leasing` asks for blocks
by `appetite`, `holding` keeps them, `pump` starts them in the downloaders of `runs`,
`reporting` brings results in, by way of the `outbox` while no center answers. `app` puts
it together. It never imports what only centers need.
"""
