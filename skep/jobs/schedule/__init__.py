"""When jobs run: due times, what becomes of each, clocks that jump. Centers only."""
