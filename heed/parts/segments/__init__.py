"""Sequences cut into segments and chunks, with what is carried from one to the next."""
