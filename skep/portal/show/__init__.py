"""How values are shown: numbers, times, states, tables, charts and forms. Pure."""
