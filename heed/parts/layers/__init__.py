"""Layers: norms, dropout, linear layers and embeddings, plain and quantised."""
