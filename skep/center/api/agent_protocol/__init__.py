"""The endpoints that agents call, separate from the resources for users."""
