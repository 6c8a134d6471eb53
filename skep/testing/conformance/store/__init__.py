"""What every store must do, as tests, one file per domain."""
