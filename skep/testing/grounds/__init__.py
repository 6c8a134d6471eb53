"""Set-ups that several tests share: centers, runs, downloaders, checks at their end."""
