"""Applications on an agent: what a center wants here runs here, in boxes or containers."""
