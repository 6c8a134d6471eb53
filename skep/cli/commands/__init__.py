"""The commands, in the groups of `skep --help`. A command's file has its name."""
