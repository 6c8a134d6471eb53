"""One run of a spider, from its choice to its last item: `skep run` without its terminal."""
