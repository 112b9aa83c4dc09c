"""Tasks that learn from files: images and sounds."""
