"""The public API as both sides use it: a file per resource, with its types and its routes.

Centers answer these routes (`center/api`), `wire/client` calls them. Types consist of `model` types
only. A new field has a default, so that older callers and centers can read it.
"""
