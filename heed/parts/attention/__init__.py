"""Softmax attention and its fast forms, multi-head projections, hashing, random features, linear attention."""
