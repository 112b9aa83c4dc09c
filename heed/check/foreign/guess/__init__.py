"""Guessing what a constructor wants: by names, by annotations, and by what lies beside it."""
