"""What runs in an application's place before the application does."""
