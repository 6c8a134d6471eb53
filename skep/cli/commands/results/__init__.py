"""`skep runs`, `data`, `request`, `failures`, `why`, and the code they share."""
