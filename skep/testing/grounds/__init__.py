"""What tests of one kind stand on: centers, runs, downloaders, checks at their end."""
