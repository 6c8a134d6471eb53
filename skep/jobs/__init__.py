"""What: requests and runs are checked here, and only what is valid is kept. Centers only."""
