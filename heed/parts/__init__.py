"""Pieces without memory: attention itself, masks, positions, scores, norms, feed-forwards, wiring, looking."""
