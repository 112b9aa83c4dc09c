"""Families of encoders: the heads that a checkpoint has, told by its tensors, and all that BERT's descendants share."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ...core.config import Count, Flag, Positive, Size, Text
from ...core.contract import MixerConfig
from ...core.errors import ConfigError
from ...mixers import Attention
from ...models import Encoder
from ...parts.feedforward import Activation, FeedForward
from ...parts.inputs.tokens import Narrow
from ...parts.layers.norms import LayerNorm
from ...parts.masks import Whole
from ...parts.outputs.heads import HeadConfig, Masked, Pooled, Spans, Tagged
from ...parts.positions import AddedConfig, Learned
from ...parts.residual.wiring import PostNorm
from ..formats.safetensors import Tensors
from ..rename import Computed, Ignored, Same, Table, both
from .base import Act, Family, prefix

SCORES = "heads.masked.scores"


@dataclass(frozen=True)
class Found:
    """A head that a checkpoint has: how to build it, and where its tensors go."""

    head: HeadConfig
    names: Table


class Prediction(NamedTuple):
    """What a family calls the parts of its masked head. None: there is no such tensor."""

    dense: str
    norm: str
    decoder: str | None
    bias: str | None = None  # beside the decoder's own


BERTS = Prediction(
    *("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm"),
    *("cls.predictions.decoder", "cls.predictions.bias"),
)


class OneSided(Family):
    """A family that reads a text and is asked about it. Which heads there are, the names of the tensors tell."""

    stem: ClassVar[str]  # what stands before the names of the backbone where there are heads

    architectures: tuple[Text, ...] | None = None
    vocab_size: Size
    tie_word_embeddings: Flag = True

    @abstractmethod
    def heads(self, tensors: Tensors) -> tuple[Found, ...]:
        """The heads whose tensors are there."""

    @property
    @abstractmethod
    def norm(self) -> LayerNorm:
        """The norm of the blocks, the embeddings and the masked head."""

    @property
    def uncounted(self) -> int | None:
        """The padding id, where the position of a token is its rank among all other ids (RoBERTa)."""
        return None

    def asked(self, tensors: Tensors) -> tuple[HeadConfig, ...] | None:
        """The heads, as an encoder is configured with them."""
        return tuple(found.head for found in self.heads(tensors)) or None

    def answers(self, tensors: Tensors) -> Table:
        """The names of all heads."""
        return tuple(rule for found in self.heads(tensors) for rule in found.names)

    def masked(self, tensors: Tensors, names: Prediction, activation: Activation) -> tuple[Found, ...]:
        """The masked head, if there is one. Its matrix is the embeddings, unless the config says otherwise."""
        if f"{names.dense}.weight" not in tensors:
            return ()
        tied = self.tie_word_embeddings or names.decoder is None
        head = Masked.Config(vocabulary=self.vocab_size, activation=activation, norm=self.norm, tied=tied)
        matrix = () if names.decoder is None else (Same(f"{names.decoder}.weight", f"{SCORES}.weight"),)
        table = both(names.dense, "heads.masked.transform"), norms(names.norm, "heads.masked.norm")
        return (Found(head, (*table[0], *table[1], *matrix, *_biases(tensors, names, tied=tied))),)

    def pooled(
        self, tensors: Tensors, dense: str, scores: str | None, activation: Activation = "tanh"
    ) -> tuple[Found, ...]:
        """The pooler, alone or with the classifier on top of it, if there is one."""
        if f"{dense}.weight" not in tensors and scores is None:
            return ()
        labels = None if scores is None else classes(tensors, scores)
        named = () if scores is None else both(scores, "heads.pooled.scores")
        head = Pooled.Config(activation=activation, labels=labels)
        return (Found(head, (*both(dense, "heads.pooled.transform"), *named)),)

    def tagged(self, tensors: Tensors, scores: str) -> tuple[Found, ...]:
        """The classifier of every token, if there is one."""
        if f"{scores}.weight" not in tensors:
            return ()
        return (Found(Tagged.Config(labels=classes(tensors, scores)), both(scores, "heads.tagged.scores")),)

    def spans(self, tensors: Tensors) -> tuple[Found, ...]:
        """Where an answer begins and ends, if that can be asked."""
        if "qa_outputs.weight" not in tensors:
            return ()
        return (Found(Spans.Config(), both("qa_outputs", "heads.spans.scores")),)

    def of_texts(self, tensors: Tensors, pooler: str) -> bool:
        """Whether `classifier` is about whole texts: the architecture tells; without a pooler it is about tokens."""
        if "classifier.weight" not in tensors:
            return False
        told = " ".join(self.architectures or ())
        if "TokenClassification" in told:
            return False
        if "SequenceClassification" in told or "MultipleChoice" in told:
            return True
        if f"{pooler}.weight" in tensors:
            raise ConfigError(
                f"classifier.weight may be about texts or about tokens, and architectures is {self.architectures}; let "
                "it name one that ends in ForSequenceClassification or ForTokenClassification"
            )
        return False


class Bertlike(OneSided):
    """The config of BERT, and an encoder as BERT is: post-norm, every token looks at all others."""

    hidden_size: Size = 768
    num_hidden_layers: Size = 12
    num_attention_heads: Size = 12
    intermediate_size: Size = 3072
    hidden_act: Act = "gelu"
    max_position_embeddings: Size = 512
    type_vocab_size: Count = 2
    layer_norm_eps: Positive = 1e-12
    is_decoder: Flag = False
    add_cross_attention: Flag = False
    position_embedding_type: Text | None = None  # of old files; None = "absolute"

    @property
    def layers(self) -> int:
        return self.num_hidden_layers

    @property
    def norm(self) -> LayerNorm:
        return LayerNorm(eps=self.layer_norm_eps)

    @property
    def mixer(self) -> MixerConfig:
        """How tokens look at one another."""
        return Attention.Config(heads=self.num_attention_heads, mask=Whole())

    @property
    def position(self) -> AddedConfig | None:
        """What is added to the embeddings."""
        return Learned.Config(length=self.max_position_embeddings)

    @property
    def narrow(self) -> Narrow | None:
        """How embeddings become as wide as the stream."""
        return None

    def ours(self, tensors: Tensors) -> Encoder.Config:
        if self.is_decoder or self.add_cross_attention:
            raise ConfigError(f"is_decoder or add_cross_attention is set: heed reads {self.types[0]} as an encoder")
        if self.position_embedding_type not in (None, "absolute"):
            raise ConfigError(
                f"position_embedding_type is {self.position_embedding_type!r}; heed reads the 'absolute' one alone"
            )
        return Encoder.Config(
            vocabulary=self.vocab_size,
            width=self.hidden_size,
            depth=self.num_hidden_layers,
            mixer=self.mixer,
            feedforward=FeedForward.Config(hidden=self.intermediate_size, activation=self.hidden_act),
            norm=self.norm,
            wiring=PostNorm(),
            position=self.position,
            embedding_norm=self.norm,
            narrow=self.narrow,
            segments=self.type_vocab_size or None,
            heads=self.asked(tensors),
        )

    def names(self, tensors: Tensors) -> Table:
        theirs = prefix(tensors, self.stem)
        return (*embedded(f"{theirs}embeddings"), *layered(f"{theirs}encoder.layer.{{i}}"), *self.answers(tensors))


def embedded(theirs: str) -> Table:
    """The tables of BERT's embeddings, their norm, and the buffers that old files hold beside them."""
    return (
        Same(f"{theirs}.word_embeddings.weight", "embeddings.table.weight"),
        Same(f"{theirs}.position_embeddings.weight", "embeddings.position.table"),
        Same(f"{theirs}.token_type_embeddings.weight", "embeddings.segment.weight"),
        *norms(f"{theirs}.LayerNorm", "embeddings.norm"),
        Ignored(f"{theirs}.position_ids"),
        Ignored(f"{theirs}.token_type_ids"),
    )


def layered(theirs: str, ours: str = "stack.blocks.{i}", projection: str = "attention.self.{}") -> Table:
    """The tensors of one of BERT's layers."""
    return (
        *(
            rule
            for what in ("query", "key", "value")
            for rule in both(f"{theirs}.{projection.format(what)}", f"{ours}.mixer.{what}")
        ),
        *both(f"{theirs}.attention.output.dense", f"{ours}.mixer.out"),
        *norms(f"{theirs}.attention.output.LayerNorm", f"{ours}.wiring.norms.0"),
        *both(f"{theirs}.intermediate.dense", f"{ours}.feedforward.up"),
        *both(f"{theirs}.output.dense", f"{ours}.feedforward.down"),
        *norms(f"{theirs}.output.LayerNorm", f"{ours}.wiring.norms.1"),
    )


def norms(theirs: str, ours: str) -> tuple[Same, ...]:
    """Weight and bias of a norm, which old files call gamma and beta."""
    old = Same(f"{theirs}.gamma", f"{ours}.weight"), Same(f"{theirs}.beta", f"{ours}.bias")
    return *both(theirs, ours), *old


def classes(tensors: Tensors, layer: str) -> int:
    """How many logits a layer makes."""
    name = f"{layer}.weight"
    shape = tensors.like(name).shape if name in tensors else ()
    if len(shape) != 2 or shape[0] < 1:
        raise ConfigError(f"{name} must be there with the shape [labels, width], not {list(shape)}")
    return shape[0]


def kept(tensors: Tensors, *names: str, beside: str = "embeddings.table.weight") -> Table:
    """Tensors that nothing reads, where they are there: they are written back as they were, `beside` one of ours."""
    return tuple(Computed(name, beside, tensors[name]) for name in names if name in tensors)


def _biases(tensors: Tensors, names: Prediction, *, tied: bool) -> Table:
    """The bias of the masked head is stored once or twice.

    Where the decoder stands for itself, its own bias is the one that is read and the other one, if there, is not. Old
    files tie the two biases all the same, and may hold either.
    """
    inner = () if names.decoder is None else (Same(f"{names.decoder}.bias", f"{SCORES}.bias"),)
    if names.bias is None:
        return inner
    outer = Same(names.bias, f"{SCORES}.bias")
    if tied:
        return outer, *inner
    return (*inner, *kept(tensors, names.bias)) if f"{names.decoder}.bias" in tensors else (*inner, outer)
