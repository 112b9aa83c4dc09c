"""What every pipeline is: a model in use behind verbs, which can be called, moved, shown and looked into."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from ..core.config import Config, Data, read_data
from ..core.contract import Mixer, Where
from ..core.errors import ConfigError, InputError
from ..core.interfaces import LanguageModel
from ..core.stamps import Span
from .results import Response
from .verbs import Verbs

if TYPE_CHECKING:
    from ..text import Tokenizer
    from ..text.batch import Numbers
    from ..weights import Opened
    from ..weights.home.fit import Trained
    from .attentions import Attentions, CrossAttentions, Inspected
    from .forward import ModelOutput

V = TypeVar("V")

AnyModel: TypeAlias = "Mixer[Any]"
Ids: TypeAlias = "np.ndarray[Any, np.dtype[np.int32]]"


@dataclass(frozen=True)
class Padded:
    """Sequences side by side, padded at their ends."""

    tokens: Tensor  # [B, T], or [B, T, F] with further fields: which of two texts
    where: Where

    @classmethod
    def of(cls, rows: Sequence[Ids], fill: int = 0) -> Self:
        """Rows of ids [T], or of ids with further fields [T, F]."""
        lengths = [len(row) for row in rows]
        width = max(lengths)
        tokens = np.full((len(rows), width, *rows[0].shape[1:]), fill, dtype=np.int64)
        for row, ids in enumerate(rows):
            tokens[row, : len(ids)] = ids
        if min(lengths) == width:
            return cls(torch.from_numpy(tokens), Where.run(len(rows), width))
        where = Where.ragged(lengths)
        where.known(Span(0, width - 1, run=True, padded=True))
        return cls(torch.from_numpy(tokens), where)

    def to(self, device: torch.device) -> Self:
        if self.tokens.device == device:
            return self
        where = Where(self.where.order.to(device), self.where.position.to(device))
        where.known(self.where.span)
        return type(self)(self.tokens.to(device), where)


@runtime_checkable
class _Configured(Protocol):
    config: Config


class Pipeline(Verbs):
    """A model in use. What it can do is a matter of its kind; asked for anything else, it says so."""

    model: AnyModel
    tokenizer: Tokenizer  # of those that take or give text
    opened: Opened | None = None  # the checkpoint that it is of, for whoever writes it back
    trained: Trained | None = None  # or what heed trained
    beside: Path | None = None  # where the files lie that go along with the weights
    family: str = ""  # the family of the checkpoint it was read from, if it is one
    reads: str = ""  # what its files hold, image or sound; "": it reads no files
    last_seed: int | None = None  # of what was sampled last: given again as seed=, it draws the same

    @property
    def can(self) -> tuple[str, ...]:
        """The verbs that this model can do."""
        return ()

    @abstractmethod
    def respond(self, text: str) -> Response:
        """What the model has to say to a text, or to the file of that name, whatever it can do."""

    def __call__(
        self,
        input_ids: Any = None,
        attention_mask: Any = None,
        *,
        token_type_ids: Any = None,
        decoder_input_ids: Any = None,
        decoder_attention_mask: Any = None,
        labels: Any = None,
        **others: Any,
    ) -> ModelOutput:
        """The model on ids, with the arguments and results of Hugging Face's models: `.logits`, `.last_hidden_state`.

        Ids are lists, a tensor or what the tokenizer gives. In a mask 1 is a token and 0 is padding, on either side: a
        token that is masked is not there. Positions count the tokens that are, and outputs are zero at padding.
        """
        from .forward import Inputs, output_of

        given = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "token_type_ids": token_type_ids,
            "decoder_input_ids": decoder_input_ids,
            "decoder_attention_mask": decoder_attention_mask,
            "labels": labels,
            **others,
        }
        return output_of(self.model, Inputs.of(given, self._encoded_texts), self.what)

    def _encoded_texts(self, texts: list[str]) -> Mapping[str, Any]:
        """The ids of texts, for a call with texts instead."""
        raise self._cannot("encode texts")

    def attentions(self, text: str | Numbers, target: str | None = None) -> Attentions | CrossAttentions:
        """The attention weights of every layer and head, on this text or on these ids."""
        raise self._cannot("show attention weights")

    def inspect(self, text: str | Numbers, target: str | None = None) -> Inspected:
        """What the model is given of a text, or of a file, in order to be looked into."""
        raise self._cannot("be looked into")

    # --- the model itself ---

    def save(self, folder: Path | str) -> None:
        """Write it as a new folder that Hugging Face's libraries load: config, safetensors, tokenizer, generation."""
        from .save import save  # who only uses a model needs none of it

        save(self, folder)

    def to(self, *where: torch.device | torch.dtype | str | int) -> Self:
        """Move the model to a device, a dtype, or both: m.to("cuda"), m.to("bfloat16"), m.to("cuda", torch.float16)."""
        from ..core.devices import DTYPES, device_of, dtype_of

        if not where:
            raise InputError('name a device or a dtype: m.to("cuda"), m.to("bfloat16")')
        for one in where:
            named = isinstance(one, torch.dtype) or str(one).removeprefix("torch.") in DTYPES
            self.model.to(dtype_of(one) if named else device_of(one))  # type: ignore[arg-type]  # known by its name
        return self

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.model.device or torch.device("cpu")

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights; of those that are quantised, what they are multiplied with."""
        floats = (weight.dtype for weight in self.model.parameters() if weight.is_floating_point())
        return next(floats, torch.float32)

    @property
    def config(self) -> Config:
        """What the model was built from, typed."""
        if not isinstance(self.model, _Configured):
            raise InputError(f"{type(self.model).__name__} was not built from a configuration")
        return self.model.config

    def __repr__(self) -> str:
        named = f" ({self.family})" if self.family else ""
        from ..parts.layers.quantised import GroupedLinear, Int8Linear

        quantised = any(isinstance(module, Int8Linear | GroupedLinear) for module in self.model.modules())
        dtype = "quantised" if quantised else str(self.dtype).removeprefix("torch.")
        weights = f"{short_count(weight_count(self.model))} parameters, {dtype}"
        lines = [f"{type(self).__name__}: {self.what}{named}", f"  {weights}, on {self.device}"]
        if isinstance(self.model, LanguageModel):
            context = "any length" if self.model.longest is None else f"{self.model.longest:,} tokens"
            lines.append(f"  context: {context}; vocabulary: {self.model.vocabulary:,} tokens")
        if self.can:
            lines.append(f"  can: {', '.join(self.can)}")
        return "\n".join(lines)


def weight_count(model: nn.Module) -> int:
    """How many weights a model has; what is tied counts once, a code counts as the weight it stands for."""
    from ..parts.layers.bitnet import PackedTernaryLinear
    from ..parts.layers.embeddings import QuantisedEmbedding
    from ..parts.layers.quantised import GroupedLinear, Int8Linear

    held = {id(weight): weight.numel() for weight in model.parameters()}
    for module in model.modules():
        match module:
            case Int8Linear() | GroupedLinear() | PackedTernaryLinear():
                held[id(module.codes)] = module.in_features * module.out_features
            case QuantisedEmbedding():
                held[id(module.codes)] = module.num_embeddings * module.embedding_dim
    return sum(held.values())


def short_count(count: int) -> str:
    """A number for people: 124M."""
    for size, letter in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:.{0 if count >= 100 * size else 1}f}{letter}"
    return str(count)


def one_or_many(given: Any, what: str, single: tuple[type, ...] = (str,)) -> tuple[bool, list[Any]]:
    """Whether it is one of `single`, and all that was given as a list."""
    if isinstance(given, single):
        return True, [given]
    if not isinstance(given, Iterable) or isinstance(given, str | bytes | Mapping | Tensor | np.ndarray):
        raise InputError(f"a {what} or a list of {what}s is needed, not {type(given).__name__}")
    several = list(given)
    for one in several:
        if not isinstance(one, single):
            raise InputError(f"a list of {what}s is needed, and this one holds {one!r}"[:200])
    return False, several


def must_be_one(text: Any) -> None:
    """Raise unless it is one text."""
    one, _ = one_or_many(text, "text")
    if not one:
        raise InputError("this is shown of one text at a time; loop over the texts")


def sidecar(path: Path) -> Data:
    """A JSON file beside the weights, which may be missing."""
    if not path.is_file():
        return {}
    try:
        return read_data(path)
    except ConfigError as error:
        raise InputError(str(error)) from None
