"""Applications on an agent: runs the desired instances in sandboxes or containers."""
