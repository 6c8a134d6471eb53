"""Skep: one program that lets a team collect data with machines of its own.

A spider, a generator, a mirror or a person asks for work; `jobs` checks it and cuts it
into requests, `lanes` pack the requests into blocks and put them in order under limits,
`placement` chooses who, `wire` carries a block to an agent, its `downloaders` fetch it,
`archive` keeps the bytes and `store` the facts.

Each noun in that sentence is a folder of this package, and a folder imports only the
folders further down the sentence. `docs/why/architecture.md` draws it.
"""

__version__ = "0.1.0"
