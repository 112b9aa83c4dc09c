"""Convolutions along a sequence or over a plane."""
