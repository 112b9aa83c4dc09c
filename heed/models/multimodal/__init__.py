"""Multimodal models: ViT, Swin, CLIP, and audio encoders."""
