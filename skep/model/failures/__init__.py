"""Failed downloads: their classes, their groups, and what can be done with dead requests."""
