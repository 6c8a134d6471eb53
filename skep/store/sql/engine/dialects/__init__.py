"""One file per database, and the list of them."""
