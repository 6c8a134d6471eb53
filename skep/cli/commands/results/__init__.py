"""`skep runs`, `data`, `request`, `failures`, `why`, and what they share."""
