"""What `skep doctor` looks at: this machine, its data folder, its center. Nothing is changed."""
