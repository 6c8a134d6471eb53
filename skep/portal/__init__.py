"""Pages for people: the portal. All data comes through the typed client of the API.

A page shows and does nothing that the API cannot. `docs/how-to/portal-pages.md` says how to add
one.
"""
