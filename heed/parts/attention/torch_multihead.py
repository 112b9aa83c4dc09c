"""`heed.MultiheadAttention`: what stands where nn.MultiheadAttention stood, with heed's masks, positions and key heads.

It is an nn.MultiheadAttention: same constructor, same call, same parameters with the same first values, so that weights
go both ways. Only `forward` is heed's: it lays out what it is given, says who sees whom, and calls the one `attend`.
Three things differ, all where torch fails: a query that sees nothing gets zeros, not NaN; `is_causal` needs no mask
beside it; and a mask whose dtype is neither boolean nor floating is told what to write.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...core.contract import Where
from ...core.errors import ConfigError, InputError
from ..look import Look, points
from ..masks import Causal, Mask, Sight, Whole
from ..positions import RELATIVE, NoPosition, Relative, RelativeConfig
from .attend import attend, written_out
from .functional import must_be_sight
from .multihead import per_head
from .sdpa import Term


class MultiheadAttention(nn.MultiheadAttention):
    """softmax( q kᵀ / √d ) v, per head, as nn.MultiheadAttention has it; and, by keyword, what heed has beside it.

    `mask` is any mask of `heed.parts.masks`, `position` the configuration of any code between queries and keys
    (`Rope.Config()`, `Alibi.Config()`), `kv_heads` the number of key heads (1 is multi-query, a divisor of `num_heads`
    is grouped-query), `scale` what scores are multiplied with, `cap` what they are bounded by. Queries are the last
    tokens of the keys, wherever a mask or a position asks which tokens they are.

    In eval mode nn.TransformerEncoderLayer computes with the weights of its attention instead of calling it. It may
    where the result is the same: without heed's options, and while nobody looks at the weights.
    """

    _options = False  # whether any of heed's options was chosen

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        mask: Mask | None = None,
        position: RelativeConfig | None = None,
        kv_heads: int | None = None,
        scale: float | None = None,
        cap: float | None = None,
    ) -> None:
        size = _size(embed_dim, num_heads, num_heads if kv_heads is None else kv_heads)
        super().__init__(
            *(embed_dim, num_heads, dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim, batch_first, device, dtype)
        )
        self.kv_heads, self.scale, self.cap = num_heads if kv_heads is None else kv_heads, scale, cap
        self.mask = _mask(mask)
        self.position = _position(position).build(num_heads, size).to(self.out_proj.weight)
        self.weights, self._biased = Look(), bias
        self._placed = position is not None and not isinstance(position, NoPosition.Config)
        self._options = (kv_heads, mask, position, scale, cap) != (None,) * 5
        if scale is not None and isinstance(position, Relative.Config):
            raise ConfigError("the relative code scales its term by head_size^-1/2; leave scale unset beside it")
        if self._placed and (add_bias_kv or add_zero_attn):
            raise ConfigError(
                "add_bias_kv and add_zero_attn add keys that stand nowhere, so no position code can place them; leave "
                "either them or position out"
            )
        if self.kv_heads != num_heads:
            self._share_keys(self.kv_heads * size)

    @property
    def _qkv_same_embed_dim(self) -> bool:
        """What torch asks before it computes with the weights itself."""
        watched = any(point.watched for point in points(self).values())
        return self._one_size and not self._options and not watched

    @_qkv_same_embed_dim.setter
    def _qkv_same_embed_dim(self, value: bool) -> None:
        """Torch's constructor says whether there is one matrix for all three, and asks when it draws it."""
        self._one_size = value

    def extra_repr(self) -> str:
        """What was chosen; the sizes of the projections follow from it."""
        shared = None if self.kv_heads == self.num_heads else self.kv_heads
        options = {"kv_heads": shared, "mask": self.mask, "scale": self.scale, "cap": self.cap}
        chosen = {"embed_dim": self.embed_dim, "num_heads": self.num_heads, "batch_first": self.batch_first, **options}
        return ", ".join(f"{name}={value!r}" for name, value in chosen.items() if value is not None)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Outputs and, if asked for, weights [B, T, S] (or [B, H, T, S], not averaged), after dropout as in torch.

        In boolean masks True means hidden; masks of numbers are added to the scores.
        """
        call = Call(self, query, key, value)
        told = attn_mask is None or self._trusts(call, key_padding_mask, need_weights=need_weights)
        causal = is_causal and told
        if causal and call.tokens != call.keys:
            raise InputError(
                f"is_causal with {call.tokens} queries and {call.keys} keys has two meanings; pass an attn_mask, or "
                "build with mask=Causal(), which takes the queries for the last tokens"
            )
        hidden = Hidden.of(call, key_padding_mask, None if causal else attn_mask)
        mask = _both(self.mask, Causal() if causal else None)
        y, weight = self._attended(call, mask, hidden, need_weights=need_weights)
        if weight is not None:
            weight = weight.mean(1) if average_attn_weights else weight
            weight = weight if call.batched else weight[0]
        return call.laid_out(self.out_proj(y.flatten(2))), weight

    def _trusts(self, call: Call, key_padding_mask: Tensor | None, *, need_weights: bool) -> bool:
        """Whether the hint that a mask is causal is taken for the mask, as torch takes it."""
        square = call.tokens == call.keys and not self._extra_keys
        return square and key_padding_mask is None and not need_weights

    @property
    def _extra_keys(self) -> int:
        """Keys that every query sees beside those it is given."""
        return int(self.bias_k is not None) + int(self.add_zero_attn)

    def _attended(
        self, call: Call, mask: Mask | None, hidden: Hidden, *, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """[B, T, H, d] and, if needed, the weights [B, H, T, S]."""
        query, key, value = self._project(call)
        where, seen = call.stamps(asked=mask is not None or self._placed)
        query, key = self.position.turn(query, where), self.position.turn(key, seen)
        value = self.position.turn_value(value, seen)
        query, key = self.position.meet(query, key, where, seen)
        sight, bias = hidden.beside((mask or Whole())(where, seen), self.position.bias, query, key, self._extra_keys)
        key, value = self._with_extra_keys(key, value)
        scale, cap, drop = self.scale, self.cap, self.dropout if self.training else 0.0
        self.weights(lambda: written_out(query, key, value, sight, bias=bias, scale=scale, cap=cap)[1])
        if need_weights:
            return written_out(query, key, value, sight, bias=bias, scale=scale, cap=cap, dropout=drop)
        return attend(query, key, value, sight, bias=bias, scale=scale, cap=cap, dropout=drop), None

    def _project(self, call: Call) -> tuple[Tensor, ...]:
        """Queries by heads, keys and values by key heads. What is one tensor is multiplied once."""
        size, shared = self.head_dim, self.kv_heads * self.head_dim
        sizes = [self.embed_dim, shared, shared]
        if self._one_size and call.one:
            packed = F.linear(call.inputs[0], self.in_proj_weight, self.in_proj_bias)
            made = list(torch.split(packed, sizes, -1))
        else:
            apart = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
            weights = torch.split(self.in_proj_weight, sizes) if self._one_size else apart
            biases = torch.split(self.in_proj_bias, sizes) if self._biased else (None,) * 3
            made = [F.linear(*each) for each in zip(call.inputs, weights, biases, strict=True)]
        return tuple(x.reshape(*x.shape[:-1], -1, size) for x in made)

    def _with_extra_keys(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """A learnt key and value of no token, and one of zeros, where they were asked for."""
        if self.bias_k is not None and self.bias_v is not None:
            pairs = ((key, self.bias_k), (value, self.bias_v))
            key, value = (
                torch.cat((x, more.view(1, 1, *x.shape[2:]).expand(len(x), -1, -1, -1)), 1) for x, more in pairs
            )
        if self.add_zero_attn:
            key, value = (F.pad(x, (0, 0, 0, 0, 0, 1)) for x in (key, value))
        return key, value

    def _share_keys(self, shared: int) -> None:
        """Weights for fewer key heads, under the same names; first values as torch draws them."""
        if not self._one_size:
            self.k_proj_weight, self.v_proj_weight = (
                nn.Parameter(old.new_empty(shared, old.shape[1])) for old in (self.k_proj_weight, self.v_proj_weight)
            )
            drawn = [self.k_proj_weight, self.v_proj_weight]
        else:
            rows = self.embed_dim + 2 * shared
            self.in_proj_weight = nn.Parameter(self.in_proj_weight.new_empty(rows, self.embed_dim))
            drawn = [self.in_proj_weight]
        for weight in drawn:
            nn.init.xavier_uniform_(weight)
        if self._biased:
            self.in_proj_bias = nn.Parameter(self.in_proj_bias.new_zeros(self.embed_dim + 2 * shared))
        if self.bias_k is not None and self.bias_v is not None:
            self.bias_k, self.bias_v = (nn.Parameter(x.new_empty(1, 1, shared)) for x in (self.bias_k, self.bias_v))
            for learnt in (self.bias_k, self.bias_v):
                nn.init.xavier_normal_(learnt)


class Call:
    """What a call is given, rows first; and how its output is laid out."""

    def __init__(self, module: MultiheadAttention, query: Tensor, key: Tensor, value: Tensor) -> None:
        self.batched, self.rows_first = query.dim() == 3, module.batch_first
        self.one = query is key and key is value
        self.inputs = tuple(self._rows_first(x) for x in (query, key, value))
        self._check(module, query, key, value)
        (self.rows, self.tokens), self.keys = self.inputs[0].shape[:2], self.inputs[1].shape[1]
        self.heads = module.num_heads

    def _rows_first(self, x: Tensor) -> Tensor:
        if not self.batched:
            return x[None]
        return x if self.rows_first else x.transpose(0, 1)

    def laid_out(self, y: Tensor) -> Tensor:
        """[B, T, E] as the caller has it."""
        if not self.batched:
            return y[0]
        return y if self.rows_first else y.transpose(0, 1)

    def stamps(self, *, asked: bool) -> tuple[Where, Where]:
        """Which tokens queries and keys are: the queries are the last ones."""
        start = self.keys - self.tokens
        if asked and start < 0:
            raise InputError(
                f"{self.tokens} queries cannot be the last of {self.keys} keys, as a mask or a position takes them to "
                "be; use attn_mask= for a mask between two sequences"
            )
        device = self.inputs[0].device
        return (
            Where.run(self.rows, self.tokens, start=max(0, start), device=device),
            Where.run(self.rows, self.keys, device=device),
        )

    def _check(self, module: MultiheadAttention, query: Tensor, key: Tensor, value: Tensor) -> None:
        shapes = f"query {list(query.shape)}, key {list(key.shape)}, value {list(value.shape)}"
        if any(x.is_nested for x in (query, key, value)):
            raise InputError("nested tensors are not taken; pad the rows and pass key_padding_mask")
        if query.dim() not in (2, 3) or not query.dim() == key.dim() == value.dim():
            layout = "rows, tokens" if self.rows_first else "tokens, rows"
            raise InputError(f"needed are [{layout}, size] three times, or [tokens, size] three times; got {shapes}")
        sizes = (module.embed_dim, module.kdim, module.vdim)
        if tuple(x.shape[-1] for x in (query, key, value)) != sizes:
            raise InputError(f"this attention takes sizes {sizes} of query, key and value; got {shapes}")
        queries, keys, values = (x.shape[:2] for x in self.inputs)
        if queries[0] != keys[0] or keys != values:
            other = "" if self.rows_first else "; rows stand second unless it is built with batch_first=True"
            raise InputError(f"{shapes} do not fit: rows must be equal, and keys as many as values{other}")


@dataclass(frozen=True, eq=False)
class Hidden:
    """What the masks of a call hide, and what they add to the scores."""

    pairs: Tensor | None = None  # True = visible. [B|1, H|1, T|1, S]
    added: Tensor | None = None

    @classmethod
    def of(cls, call: Call, key_padding_mask: Tensor | None, attn_mask: Tensor | None) -> Hidden:
        """Both masks in one."""
        masks = []
        if key_padding_mask is not None:
            wanted = (call.rows, call.keys) if call.batched else (call.keys,)
            _must_be("key_padding_mask", key_padding_mask, wanted)
            masks.append(key_padding_mask.view(call.rows, 1, 1, call.keys))
        if attn_mask is not None:
            pairs, heads = (call.tokens, call.keys), (call.rows * call.heads, call.tokens, call.keys)
            _must_be("attn_mask", attn_mask, pairs, heads)
            masks.append(attn_mask.reshape(-1, 1 if attn_mask.dim() == 2 else call.heads, *pairs))
        hidden = cls()
        for mask in masks:
            hidden = hidden.and_mask(mask, call.inputs[0].dtype)
        return hidden

    def and_mask(self, mask: Tensor, dtype: torch.dtype) -> Hidden:
        """Beside what is hidden already. -inf hides: a sum would forget who sees nothing."""
        if mask.dtype == torch.bool:
            return Hidden(_joined(self.pairs, ~mask, torch.logical_and), self.added)
        gone = mask.isneginf()
        added = mask.masked_fill(gone, 0.0).to(dtype)
        return Hidden(_joined(self.pairs, ~gone, torch.logical_and), _joined(self.added, added, torch.add))

    def beside(
        self, sight: Sight, term: Term | None, query: Tensor, key: Tensor, extra: int
    ) -> tuple[Sight | Tensor | None, Tensor | Term | None]:
        """Who sees whom, and what is added, of these and of a mask and a position; and of keys that all see.

        Without masks of the call it stays a rule, which `attend` knows faster forms for.
        """
        if self.pairs is None and self.added is None and not extra:
            return None if isinstance(sight.mask, Whole) and term is None else sight, term
        pairs, added = self.pairs, self.added
        if not isinstance(sight.mask, Whole):
            pairs = _joined(pairs, sight.pairs(query.shape[2]), torch.logical_and)
        if term is not None:
            added = _joined(added, term(query, key, sight.query, sight.key), torch.add)
        return (
            None if pairs is None else F.pad(pairs, (0, extra), value=True),
            None if added is None else F.pad(added, (0, extra)),
        )


def _joined(one: Tensor | None, other: Tensor, how: Any) -> Tensor:
    joined: Tensor = other if one is None else how(one, other)
    return joined


def _both(one: Mask | None, other: Mask | None) -> Mask | None:
    return one & other if one is not None and other is not None else one or other


def _must_be(name: str, mask: Tensor, *shapes: tuple[int, ...]) -> None:
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise InputError(
            f"{name} must be boolean with True = hidden, or numbers that are added to the scores, not {mask.dtype}; "
            "if 1 means a token and 0 padding, write mask == 0"
        )
    if tuple(mask.shape) not in shapes:
        raise InputError(f"{name} has shape {tuple(mask.shape)}; needed is {' or '.join(map(str, shapes))}")


def _size(width: int, heads: int, kv_heads: int) -> int:
    if width <= 0 or heads <= 0 or kv_heads <= 0:
        raise ConfigError(f"embed_dim, num_heads and kv_heads must be 1 or more, not {width}, {heads} and {kv_heads}")
    if heads % kv_heads:
        raise ConfigError(f"{heads} heads cannot share kv_heads = {kv_heads} evenly; use a divisor of {heads}")
    return per_head(width, heads)


def _mask(mask: object) -> Mask | None:
    sight = must_be_sight(mask)
    if sight is None or isinstance(sight, Mask):
        return sight
    raise ConfigError("mask= is a rule such as Causal() or Window(back=255); a tensor goes to attn_mask= of the call")


def _position(position: object) -> RelativeConfig:
    if position is None:
        return NoPosition.Config()
    if isinstance(position, RelativeConfig):
        return position
    codes = ", ".join(f"{kind.__qualname__}(...)" for kind in RELATIVE if kind is not NoPosition.Config)
    raise ConfigError(f"position= is the configuration of a position code, one of {codes}; not {position!r}")
