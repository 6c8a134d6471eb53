"""The side of centers: batches become pieces, pieces are searched, followed and deleted by age."""
