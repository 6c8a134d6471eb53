"""Settings of a center that are kept in its store: users, groups, tokens, host rules, and more."""
