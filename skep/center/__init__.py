"""The center: keeps and decides. This room only puts the others together."""
