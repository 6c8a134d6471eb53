"""The checks of `skep doctor`: this machine, its data folder, its center. They change nothing."""
