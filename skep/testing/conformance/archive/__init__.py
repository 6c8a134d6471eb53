"""What every archive must do, as tests."""
