"""When jobs run: due times, their outcomes, clocks that jump. Centers only."""
