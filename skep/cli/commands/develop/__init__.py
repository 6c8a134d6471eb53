"""`skep new`, `shell`, `parse`, `replay`, `completion`, `version`."""
