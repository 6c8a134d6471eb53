"""What runs inside the box, beside user code: it imports nothing else of Skep."""
