"""BigBird (Zaheer et al. 2020): BERT whose tokens see blocks of others."""

from __future__ import annotations

from typing import ClassVar, Literal

from ... import mixers
from ...core.config import Count, Flag, Size
from ...core.contract import MixerConfig
from ...core.errors import ConfigError
from ...models import Decoder, Encoder
from ..formats.safetensors import Tensors
from ..rename import Table
from .base import Act, prefix
from .encoders import BERTS, Bertlike, kept
from .found import Found, tagged

AROUND = 5  # blocks that a block sees beside random ones: three of its window and the two ends


class BigBird(Bertlike):
    """BigBird: sparse over blocks, or whole where the config or the length says so.

    Their code draws random blocks in training alone; when it answers, the first block stands in for all of them. So a
    checkpoint is read with `repeats_first`; take that out of its config for the paper's form.
    """

    types: ClassVar[tuple[str, ...]] = ("big_bird",)
    paper: ClassVar[str] = "Zaheer et al. 2020, arXiv 2007.14062"
    stem: ClassVar[str] = "bert."
    decodes: ClassVar[bool] = True

    vocab_size: Size = 50358
    hidden_act: Act = "gelu_tanh"
    max_position_embeddings: Size = 4096
    pad_token_id: Count | None = 0
    attention_type: Literal["block_sparse", "original_full"] = "block_sparse"
    block_size: Size = 64
    num_random_blocks: Count = 3
    use_bias: Flag = True
    rescale_embeddings: Flag = False

    @property
    def full(self) -> int:
        """Of how many blocks a text is at most in which every token sees all."""
        return AROUND + 2 * self.num_random_blocks

    @property
    def mixer(self) -> MixerConfig:
        heads, bias = self.num_attention_heads, self.use_bias
        if self.attention_type == "original_full":
            return mixers.Attention.Config(heads=heads, mask=self.mask, bias=bias, out_bias=True)
        return mixers.BigBird.Config(
            heads=heads,
            block=self.block_size,
            random=self.num_random_blocks,
            repeats_first=True,
            full=self.full,
            bias=bias,
            out_bias=True,
        )

    def decoder(self, tensors: Tensors) -> Decoder.Config:
        if self.attention_type != "original_full":
            raise ConfigError(
                f"is_decoder is set with attention_type {self.attention_type!r}, whose blocks look ahead; a decoder is "
                "read with 'original_full'"
            )
        return super().decoder(tensors).model_copy(update={"scaled": self.rescale_embeddings})

    def second_half(self, tensors: Tensors) -> Decoder.Config:
        raise ConfigError(
            "its decoder is big_bird: the reference library lets its self-attention look at the encoder instead of the "
            "target, so that such checkpoints are not what their config says; heed reads bert, roberta, roformer, "
            "electra and gpt2 as decoders of an encoder-decoder"
        )

    def encoder(self, tensors: Tensors) -> Encoder.Config:
        if any(name.startswith("qa_classifier.") for name in tensors):
            raise ConfigError(
                "it answers questions by a head with a layer of its own, which heed does not hold; "
                "save the backbone alone, or with another head"
            )
        return super().encoder(tensors).model_copy(update={"scaled": self.rescale_embeddings})

    def names(self, tensors: Tensors) -> Table:
        unread = () if self._pooling(tensors) else (f"{self._pooler(tensors)}.{part}" for part in ("weight", "bias"))
        return *super().names(tensors), *kept(tensors, *unread)

    def heads(self, tensors: Tensors) -> tuple[Found, ...]:
        pooler = self._pooler(tensors)
        texts = self.of_texts(tensors, pooler)
        pair = "cls.seq_relationship" if "cls.seq_relationship.weight" in tensors else None
        if self._pooling(tensors):
            own = self.pooled(tensors, pooler, "classifier" if texts else pair)
        else:
            own = self.pooled(tensors, "classifier.dense", "classifier.out_proj", self.hidden_act)
        return (
            *self.masked(tensors, BERTS, self.hidden_act),
            *own,
            *(() if texts else tagged(tensors, "classifier")),
        )

    def _pooler(self, tensors: Tensors) -> str:
        return f"{prefix(tensors, self.stem)}pooler"

    def _pooling(self, tensors: Tensors) -> bool:
        """Whether anything is made of the pooler: a classifier of texts has a layer of its own instead."""
        return "classifier.dense.weight" not in tensors
