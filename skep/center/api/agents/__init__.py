"""What agents call, apart from the resources for people."""
