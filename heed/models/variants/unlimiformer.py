"""Unlimiformer (Bertsch et al. 2023): a trained encoder-decoder for sources of any length, without training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.errors import ConfigError

if TYPE_CHECKING:
    from ..seq2seq import Seq2seq


def unlimiformer(model: Seq2seq, *, nearest: int, window: int | None = None) -> Seq2seq:
    """A copy whose cross-attention attends to the `nearest` source tokens of each head, and no others.

    With `window`, the source is encoded in overlapping windows of so many tokens, so that it may be longer than what
    the encoder was trained on. Sources of at most `nearest` tokens, and of one window, give what they gave before.
    """
    twin = plan(model.config, nearest=nearest, window=window).build()
    twin.load_state_dict(model.state_dict())
    first = next(model.parameters())
    return twin.to(device=first.device, dtype=first.dtype).train(model.training)


def plan(config: Seq2seq.Config, *, nearest: int, window: int | None = None) -> Seq2seq.Config:
    """The configuration of that copy."""
    from ...mixers import KnnCross  # a package that offers this by name need not import what it is made of
    from ...parts.attention.multihead import HeadedConfig
    from ..encoder import Encoder
    from .sled import SledEncoder

    cross, encoder = config.decoder.cross, config.encoder
    if cross is None:
        raise ConfigError("the decoder has no cross-attention to replace")
    near = KnnCross.Config(**{name: getattr(cross, name) for name in HeadedConfig.model_fields}, nearest=nearest)
    sides: dict[str, object] = {"decoder": config.decoder.model_copy(update={"cross": near})}
    if window is not None:
        if not isinstance(encoder, Encoder.Config):
            raise ConfigError("only a source of tokens is encoded in windows; leave window unset")
        names = set(Encoder.Config.model_fields) - {"kind"}
        sides["encoder"] = SledEncoder.Config(**{name: getattr(encoder, name) for name in names}, window=window)
    return config.model_copy(update=sides)
