"""Families of encoders: the heads that a checkpoint has, told by its tensors, and all that BERT's descendants share."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, NamedTuple

from ...core.config import Count, Flag, Positive, Size, Text
from ...core.contract import MixerConfig
from ...core.errors import ConfigError
from ...mixers import Attention, Cross
from ...models import Decoder, Encoder
from ...parts.feedforward import Activation, FeedForward
from ...parts.inputs.tokens import Narrow
from ...parts.layers.norms import LayerNorm
from ...parts.masks import Causal, Mask, Whole
from ...parts.outputs.heads import HeadConfig, Masked, Pooled
from ...parts.positions import AddedConfig, Learned
from ...parts.residual.wiring import PostNorm
from ..formats.safetensors import Tensors
from ..rename import Computed, Ignored, Rule, Same, Table, both
from .base import Act, Family, prefix
from .encoder_decoders import SecondHalf
from .found import Found, classes

SCORES, NORM = "heads.masked.scores", "heads.masked.norm"


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
        table = both(names.dense, "heads.masked.transform"), norms(names.norm, NORM)
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


class Bertlike(OneSided, SecondHalf):
    """The config of BERT, and an encoder as BERT is: post-norm, every token looks at all others.

    Some of its descendants may be decoders (`is_decoder`): a token looks at those before it, and the masked head
    predicts the next one.
    """

    decodes: ClassVar[bool] = False  # whether the reference library has it as a decoder

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
        return Attention.Config(heads=self.num_attention_heads, mask=self.mask)

    @property
    def position(self) -> AddedConfig | None:
        """What is added to the embeddings."""
        return Learned.Config(length=self.max_position_embeddings)

    @property
    def narrow(self) -> Narrow | None:
        """How embeddings become as wide as the stream."""
        return None

    @property
    def mask(self) -> Mask:
        """Which tokens a token looks at."""
        return Causal() if self.is_decoder else Whole()

    def ours(self, tensors: Tensors) -> Encoder.Config | Decoder.Config:
        if (self.is_decoder or self.add_cross_attention) and not self.decodes:
            raise ConfigError(f"is_decoder or add_cross_attention is set: heed reads {self.types[0]} as an encoder")
        if self.add_cross_attention:
            raise ConfigError(
                "add_cross_attention is set: this is the decoder of an encoder-decoder, which heed reads together with "
                "its encoder, from a folder whose model_type is encoder-decoder"
            )
        return self.decoder(tensors) if self.is_decoder else self.encoder(tensors)

    def second_half(self, tensors: Tensors) -> Decoder.Config:
        if not (self.decodes and self.is_decoder and self.add_cross_attention):
            raise ConfigError(
                f"the decoder of an encoder-decoder is {self.types[0]!r} with is_decoder={self.is_decoder} and "
                f"add_cross_attention={self.add_cross_attention}; needed are both, in a family that has decoders: "
                "bert, roberta, roformer, electra, gpt2"
            )
        return self.decoder(tensors)

    def _must_be_absolute(self) -> None:
        if self.position_embedding_type not in (None, "absolute"):
            raise ConfigError(
                f"position_embedding_type is {self.position_embedding_type!r}; heed reads the 'absolute' one alone"
            )

    def decoder(self, tensors: Tensors) -> Decoder.Config:
        """As a language model, which may look at the output of an encoder."""
        self._must_be_absolute()
        head = self._predicting(tensors).head
        assert isinstance(head, Masked.Config)
        return Decoder.Config(
            vocabulary=self.vocab_size,
            width=self.hidden_size,
            depth=self.num_hidden_layers,
            mixer=self.mixer,
            cross=Cross.Config(heads=self.num_attention_heads) if self.add_cross_attention else None,
            feedforward=FeedForward.Config(hidden=self.intermediate_size, activation=self.hidden_act),
            norm=self.norm,
            wiring=PostNorm(),
            position=self.position,
            embedding_norm=self.norm,
            narrow=self.narrow,
            segments=self.type_vocab_size or None,
            head_activation=head.activation,
            head_bias=True,
            tied=head.tied,
        )

    def _predicting(self, tensors: Tensors) -> Found:
        """The masked head, which a decoder predicts the next token by. It has no other; of a pooler nothing is made."""
        found = self.heads(tensors)
        poolers = [one for one in found if isinstance(one.head, Pooled.Config) and one.head.labels is None]
        rest = [one for one in found if one not in poolers]
        if len(rest) != 1 or not isinstance(rest[0].head, Masked.Config):
            kinds = ", ".join(str(one.head.dump()["kind"]) for one in found) or "none"
            raise ConfigError(
                f"is_decoder is set: needed is the head of a language model and no other, there is {kinds}; save it as "
                f"a {self.types[0]} model for causal language modelling, or set is_decoder to false"
            )
        unread = (rule.theirs for one in poolers for rule in one.names)
        return Found(rest[0].head, (*rest[0].names, *kept(tensors, *unread)))

    def encoder(self, tensors: Tensors) -> Encoder.Config:
        """As an encoder, with the heads that it has."""
        self._must_be_absolute()
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
        layer = f"{theirs}encoder.layer.{{i}}"
        if not self.is_decoder:
            return (*embedded(f"{theirs}embeddings"), *layered(layer), *self.answers(tensors))
        head = tuple(map(_of_decoder, self._predicting(tensors).names))
        layers = layered(layer, crossed=self.add_cross_attention)
        return (*embedded(f"{theirs}embeddings"), *layers, *head)


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


def _of_decoder(rule: Rule | Ignored | Computed) -> Rule | Ignored | Computed:
    """A tensor of the masked head where it is the head of a decoder."""
    if not isinstance(rule, Same):
        return rule
    for masked, own in ((SCORES, "head"), ("heads.masked.transform", "narrow.layer"), (NORM, "narrow.norm")):
        if rule.ours.startswith(masked):
            return Same(rule.theirs, rule.ours.replace(masked, own))
    return rule


def layered(
    theirs: str, ours: str = "stack.blocks.{i}", projection: str = "attention.self.{}", *, crossed: bool = False
) -> Table:
    """The tensors of one of BERT's layers; `crossed`: with a cross-attention between its two parts."""
    last = 2 if crossed else 1
    between = (
        *(
            rule
            for what in ("query", "key", "value")
            for rule in both(f"{theirs}.crossattention.self.{what}", f"{ours}.cross.{what}")
        ),
        *both(f"{theirs}.crossattention.output.dense", f"{ours}.cross.out"),
        *norms(f"{theirs}.crossattention.output.LayerNorm", f"{ours}.wiring.norms.1"),
    )
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
        *norms(f"{theirs}.output.LayerNorm", f"{ours}.wiring.norms.{last}"),
        *(between if crossed else ()),
    )


def norms(theirs: str, ours: str) -> tuple[Same, ...]:
    """Weight and bias of a norm, which old files call gamma and beta."""
    old = Same(f"{theirs}.gamma", f"{ours}.weight"), Same(f"{theirs}.beta", f"{ours}.bias")
    return *both(theirs, ours), *old


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
