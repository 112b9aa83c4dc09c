"""Checkpoints in their authors' own layouts, and mechanisms that were recorded alone: one file per layout."""
