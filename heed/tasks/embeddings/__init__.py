"""Vectors learnt by dot products alone, without a mixer: of words (word2vec), of users and items (a recommender)."""
