"""Facts in SQL: requests, blocks, runs, agents, tokens. Only centers open a store."""
