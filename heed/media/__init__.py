"""Images and sounds: from a file to what a model is fed."""
