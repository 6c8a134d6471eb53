"""Application jobs: packages, instances and their agents. Centers only."""
