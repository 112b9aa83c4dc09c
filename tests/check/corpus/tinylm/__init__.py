"""tinylm: a package as people lay it out."""
from .layers.attention import SelfAttention
from .model import TinyLM

__all__ = ["SelfAttention", "TinyLM"]
