"""What goes wrong on purpose, beside the documented modules of `skep.testing`."""
