"""Recorded runs computed again: what heed gives for the inputs that a reference was given."""
