"""One file per page: its path, its title, its place in the side bar, and its data."""
