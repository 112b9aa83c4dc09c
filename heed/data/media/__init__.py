"""Files of images and sounds as examples: what is told of each, and where it lies; nothing is decoded here."""
