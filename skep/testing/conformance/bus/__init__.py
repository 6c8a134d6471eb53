"""What every bus must do, as tests, and a model to compare with."""
