"""`skep agents`, `agent`, `token`, `placement`, `sites`, and the code they share."""
