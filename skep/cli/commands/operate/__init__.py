"""`skep info`, `doctor`, `backup`, `restore` and more: a center in operation."""
