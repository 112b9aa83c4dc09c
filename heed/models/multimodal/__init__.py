"""Models of images and sounds: ViT, Swin, CLIP, and encoders of audio."""
