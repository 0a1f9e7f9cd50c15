"""What documents say, and whether it is true: checking one, and comparing two."""
