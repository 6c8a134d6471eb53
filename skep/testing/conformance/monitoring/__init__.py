"""What every store promises about figures over time, alerts and failure groups."""
