"""Pipelines of images and sounds."""
