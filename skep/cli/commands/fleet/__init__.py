"""`skep agents`, `agent`, `token`, `placement`, `sites`, and what they share."""
