"""A model in use: text, encoders, images, sounds; and which pipeline a checkpoint gets."""
