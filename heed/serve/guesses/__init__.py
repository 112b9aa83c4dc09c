"""Speculative decoding: tokens that may come are guessed, and stepped in the same call as the one that is certain.

A guess is right if the token that is sampled of its row's logits, as without guesses, is the guessed one; the first
that is wrong ends it. So an answer has the same bits, and a sample the same distribution; only calls are fewer.
"""
