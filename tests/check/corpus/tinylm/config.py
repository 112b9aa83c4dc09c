from dataclasses import dataclass, field


@dataclass
class LayerConfig:
    dim: int = 32
    heads: int = 4
    bias: bool = False


@dataclass
class TinyConfig:
    vocab: int = 61
    context: int = 48
    depth: int = 2
    layer: LayerConfig = field(default_factory=LayerConfig)
