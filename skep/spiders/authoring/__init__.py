"""What spiders are written with; its public names are in `skep`."""
