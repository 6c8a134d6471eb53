"""HTTP of a center: server, endpoint table, OpenAPI, authentication, bounds."""
