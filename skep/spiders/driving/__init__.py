"""The loop that drives a spider over its run's queue, and its parts."""
