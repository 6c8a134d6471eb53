"""The people's API as both sides know it: a file per resource, with its types and its routes.

Centers answer these routes (`center/api`), `wire/client` calls them. Types are made of nouns of
`model` alone. A field that is added has a default, so that older callers and centers read it.
"""
