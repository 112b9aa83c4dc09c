"""What stands before a stack: embeddings of tokens, patches and audio."""
