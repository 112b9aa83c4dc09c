"""Whole trees of strangers' code: attention found by reading, and every find checked in a process of its own."""
