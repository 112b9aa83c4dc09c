"""Models of a shape of their own: what is more than a stack between embeddings and a head."""
