"""Pipeline documents: short forms, checks, and the difference of two. Used by centers and the
command line."""
