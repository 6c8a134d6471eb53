"""What commands share: options, output, progress, exit codes, the center they talk to."""
