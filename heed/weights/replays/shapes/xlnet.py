"""What XLNet gives: hidden states and attention weights of both streams, memories, logits of its heads.

The reference hides pairs by the masks that a call brings, whatever they are, and subtracts 10^30 from their scores: who
sees nothing at all takes the mean of everything. So the replay hands the mixers what is written out in these masks
instead of orders of revelation, and everything is equal at every column, padding too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from ....core.contract import Where
from ....core.errors import WeightsError
from ....core.state import Seen
from ....mixers import TwoStream
from ....models import XLNet, XLNetEncoder
from ....models.block import Block
from ....models.variants.xlnet import query
from ....parts.look import look
from ...families.xlnet import XLNet as Family
from ...formats.folder import INPUTS, Folder
from ..greedy import generated, is_called
from ..inputs import Outputs
from .shared import mean_loss, must_read

FAR = -1e30  # is added to the scores of hidden pairs
AnyXLNet: TypeAlias = XLNet | XLNetEncoder
Memories: TypeAlias = "list[Tensor] | None"  # [B, M, D] of each layer


def outputs(model: AnyXLNet, family: Family, folder: Folder) -> Outputs:
    """`logits` or `last_hidden_state`, `hidden_states`, `attentions`, `mems`, the `loss`; of heads what they say.

    Beside `target_mapping` streams and weights come in pairs, content first. Inputs that are numbered (`input_ids.0`,
    `input_ids.1`) are the segments of a text, each of which is given the memory of those before. A continuation is
    written without memory, and without any mask, as the reference's own does.
    """
    must_read(folder)
    made: Outputs = {}
    if "input_ids" in folder.inputs:
        if is_called(folder):
            made |= _called(model, family, folder, Call.of(folder, ""), _given_memories(model, folder))[0]
        if isinstance(model, XLNet) and folder.inputs["input_ids"].dim() == 2:
            made |= _continued(model, family, folder)
        return made
    memories, count = _given_memories(model, folder), 0
    while f"input_ids.{count}" in folder.inputs:
        segment, memories = _called(model, family, folder, Call.of(folder, f".{count}"), memories)
        made |= {_numbered(name, count): tensor for name, tensor in segment.items()}
        count += 1
    folder.input("input_ids" if count == 0 else "input_ids.0")  # which says so, if there is none
    return made


@dataclass(frozen=True)
class Call:
    """The inputs of one call of the reference."""

    tokens: Tensor  # [B, T]
    choices: int | None = None  # rows that belong together: the answers to choose from
    given: Outputs = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Folder, end: str) -> Call:
        """Those whose names end so."""
        tokens = folder.input(f"input_ids{end}")
        names = ("attention_mask", "input_mask", "token_type_ids", "perm_mask", "target_mapping", "labels")
        given = {name: folder.input(name + end) for name in names if name + end in folder.inputs}
        for name in ("start_positions", "end_positions"):
            given |= {name: folder.input(name)} if name in folder.inputs else {}
        choices = tokens.shape[1] if tokens.dim() == 3 else None
        if choices is not None:
            flat = [name for name, tensor in given.items() if tensor.shape == tokens.shape]
            given |= {name: given[name].flatten(0, 1) for name in flat}
            tokens = tokens.flatten(0, 1)
        call = cls(tokens, choices, given)
        call.check(folder)
        return call

    def check(self, folder: Folder) -> None:
        """Raise unless every input has the shape that the tokens ask for."""
        if self.tokens.dim() != 2:
            raise WeightsError(
                f"{folder.path / INPUTS}: input_ids has the shape {list(self.tokens.shape)}; needed is [rows, tokens]"
            )
        rows, length = self.tokens.shape
        mapped = self.given["target_mapping"].shape[1] if self.has("target_mapping", 3) else 0
        shapes: dict[str, tuple[int, ...]]
        shapes = {"perm_mask": (rows, length, length), "target_mapping": (rows, mapped, length)}
        shapes |= dict.fromkeys(("attention_mask", "input_mask", "token_type_ids"), (rows, length))
        for name, shape in shapes.items():
            if name in self.given and self.given[name].shape != shape:
                found = list(self.given[name].shape)
                raise WeightsError(f"{folder.path / INPUTS}: {name} has the shape {found}; needed is {list(shape)}")
        if "attention_mask" in self.given and "input_mask" in self.given:
            raise WeightsError(f"{folder.path / INPUTS} holds attention_mask and input_mask; one of them says it all")

    def has(self, name: str, dimensions: int) -> bool:
        """Whether there is such an input with so many dimensions."""
        return name in self.given and self.given[name].dim() == dimensions

    @property
    def mapping(self) -> Tensor | None:
        """Which places each target asks at. [B, M, T]"""
        return self.given.get("target_mapping")

    def hidden(self, family: Family, before: int) -> Tensor | None:
        """What the query stream does not see, beside so many remembered tokens; None = it sees all. [B|1, T, N]"""
        length = self.tokens.shape[1]
        hidden = None
        if "attention_mask" in self.given:
            hidden = (1.0 - self.given["attention_mask"])[:, None]
        elif "input_mask" in self.given:
            hidden = self.given["input_mask"][:, None]
        if "perm_mask" in self.given:
            hidden = self.given["perm_mask"] if hidden is None else hidden + self.given["perm_mask"]
        hidden = None if hidden is None else F.pad(hidden.double(), (before, 0))  # every token sees the memory
        if family.attn_type == "uni":
            place, key = torch.arange(length)[:, None], torch.arange(before + length)
            ahead = key > place + before
            beyond = (ahead | (key < place) if family.same_length else ahead)[None].double()
            hidden = beyond if hidden is None else beyond + hidden
        return None if hidden is None else hidden.expand(-1, length, -1) > 0

    def stamps(self, family: Family, before: int) -> tuple[Where, Where]:
        """The tokens, and all that they look at. Of `bi_data` the second half of the rows is read backwards."""
        rows, length = self.tokens.shape
        order = torch.arange(before + length).expand(rows, -1)
        position = order.clone()
        if family.bi_data:
            position[rows // 2 :] *= -1
        everything = Where(order, position)
        tokens = Where(order[:, before:], position[:, before:])
        if "token_type_ids" in self.given:
            segment = self.given["token_type_ids"]
            tokens = tokens.give(segment=segment)
            everything = everything.give(segment=F.pad(segment, (before, 0)))  # what is remembered is of segment 0
        return tokens, everything


@dataclass
class TwoStreams:
    """Both streams and what was remembered, depth by depth."""

    streams: list[list[Tensor]]
    memories: list[Tensor] = field(default_factory=list)


def _called(
    model: AnyXLNet, family: Family, folder: Folder, call: Call, memories: Memories
) -> tuple[Outputs, list[Tensor]]:
    """All that one call gives, and the memory after it."""
    with look(model.stack) as seen:
        depths = _run(model, family, call, memories)
    pair = call.mapping is not None
    flat = [stream for streams in depths.streams for stream in streams]
    made = {f"hidden_states.{index}": stream for index, stream in enumerate(flat)}
    for layer in range(len(model.stack.layers)):
        shown = [seen[f"blocks.{layer}.mixer.{point}"][0] for point in (("weights", "asked") if pair else ("weights",))]
        made |= {f"attentions.{layer}.{index}" if pair else f"attentions.{layer}": w for index, w in enumerate(shown)}
    made |= {f"mems.{layer}": memory.transpose(0, 1) for layer, memory in enumerate(depths.memories)}
    return made | _answers(model, folder, call, flat[-1]), depths.memories


def _run(model: AnyXLNet, family: Family, call: Call, memories: Memories) -> TwoStreams:
    before = 0 if memories is None else memories[0].shape[1]
    where, everything = call.stamps(family, before)
    h = model.embeddings(call.tokens, where)
    mapping = None if call.mapping is None else call.mapping.to(h.dtype)
    unseen = call.hidden(family, before)
    own = torch.eye(call.tokens.shape[1], dtype=torch.bool)
    apart = None if unseen is None else _added(unseen & ~F.pad(own, (before, 0)), h)  # a token sees itself
    g = None if mapping is None else model.mask.expand(*mapping.shape[:2], -1)
    depths = TwoStreams([_both(h, g)])
    for layer, block in enumerate(model.stack.layers):
        past = None if memories is None else memories[layer]
        depths.memories.append(_kept(family, past, h))
        known = h if past is None else torch.cat((past, h), 1)
        seen = Seen.of(everything, *_mixer(block).entries(known, everything))
        if g is not None and mapping is not None:
            g = _asked(block, g, where, seen, mapping, None if unseen is None else _added(unseen, h))
        h = query(
            block,
            h,
            where,
            lambda mixer, x, seen=seen: mixer.merge(  # type: ignore[misc]
                mixer.attended(mixer.queries(x), where, seen, None, added=apart)
            ),
        )
        depths.streams.append(_both(h, g))
    return depths


def _asked(block: Block, g: Tensor, where: Where, seen: Seen, mapping: Tensor, added: Tensor | None) -> Tensor:
    """The query stream after a block. Targets may map to several places, and places to several targets."""

    def ask(mixer: TwoStream, x: Tensor) -> Tensor:
        placed = torch.einsum("bmhd,bmt->bthd", mixer.queries(x), mapping)
        taken = mixer.attended(placed, where, seen, None, added=added, point=mixer.asked)
        return mixer.merge(torch.einsum("bthd,bmt->bmhd", taken, mapping))

    return query(block, g, Where.run(*g.shape[:2]), ask)


def _mixer(block: Block) -> TwoStream:
    assert isinstance(block.mixer, TwoStream)  # as both shapes make sure
    return block.mixer


def _both(h: Tensor, g: Tensor | None) -> list[Tensor]:
    return [h] if g is None else [h, g]


def _added(hidden: Tensor, like: Tensor) -> Tensor:
    """What is added to the scores. [B|1, T, N] -> [B|1, 1, T, N]"""
    return (hidden.to(like.dtype) * FAR)[:, None]


def _kept(family: Family, past: Tensor | None, h: Tensor) -> Tensor:
    """What of a layer's stream is remembered: `mem_len` tokens at most, of this call only the first `reuse_len`."""
    h = h[:, : family.reuse_len] if family.reuse_len else h
    whole = h if past is None else torch.cat((past, h), 1)
    return whole[:, -family.mem_len :] if family.mem_len else whole


def _given_memories(model: AnyXLNet, folder: Folder) -> Memories:
    """Memories that are an input: `mems.0`, ... of every layer. [M, B, D]"""
    names = [f"mems.{layer}" for layer in range(len(model.stack.layers))]
    if not any(name in folder.inputs for name in names):
        return None
    memories = [folder.input(name) for name in names]
    width = model.config.width
    rows = len(Call.of(folder, "" if "input_ids" in folder.inputs else ".0").tokens)
    length = memories[0].shape[0] if memories[0].dim() else 0
    if any(memory.shape != (length, rows, width) for memory in memories):
        shapes = ", ".join(str(list(memory.shape)) for memory in memories)
        raise WeightsError(
            f"{folder.path / INPUTS}: mems have the shapes {shapes}; needed is [tokens, {rows}, {width}] of each"
        )
    return [memory.transpose(0, 1) for memory in memories]


def _answers(model: AnyXLNet, folder: Folder, call: Call, stream: Tensor) -> Outputs:
    """What the heads say, and the loss if labels are given."""
    made = {"last_hidden_state": stream}
    labels = call.given.get("labels")
    if isinstance(model, XLNet):
        made["logits"] = model.head(stream)
        return made if labels is None else made | {"loss": _mean(folder, made["logits"], labels)}
    where = Where.run(*stream.shape[:2])
    for kind, head in model.heads.items():
        answer = head(stream, where)
        if kind == "spans":
            made["start_logits"], made["end_logits"] = answer.unbind(-1)
            continue
        made["logits"] = answer if call.choices is None else answer.reshape(-1, call.choices)
        if labels is not None:
            many = kind == "pooled" and call.choices is None
            loss = _text_loss(folder, answer, labels) if many else _mean(folder, made["logits"], labels)
            made["loss"] = loss
    if "start_logits" in made and "start_positions" in call.given and "end_positions" in call.given:
        made["loss"] = _span_loss(made, [call.given["start_positions"], call.given["end_positions"]])
    return made


def _mean(folder: Folder, logits: Tensor, labels: Tensor) -> Tensor:
    if labels.numel() != logits.shape[:-1].numel() or labels.is_floating_point():
        raise WeightsError(
            f"{folder.path / INPUTS}: labels are {labels.dtype} of the shape {list(labels.shape)}; needed is the "
            f"number of a class for each of {list(logits.shape[:-1])}"
        )
    return mean_loss(logits.flatten(0, -2), labels.flatten().long())


def _text_loss(folder: Folder, logits: Tensor, labels: Tensor) -> Tensor:
    """A text has a value, a class or several classes: as the config says or, if it does not, as the labels look."""
    several = "multi_label_classification" if labels.is_floating_point() else "single_label_classification"
    problem = folder.config.get("problem_type") or ("regression" if logits.shape[-1] == 1 else several)
    if problem == "single_label_classification":
        return _mean(folder, logits, labels)
    if labels.numel() != logits.numel():
        raise WeightsError(
            f"{folder.path / INPUTS}: labels have the shape {list(labels.shape)}; needed is {list(logits.shape)}"
        )
    labels = labels.reshape(logits.shape).to(logits)
    return F.mse_loss(logits, labels) if problem == "regression" else F.binary_cross_entropy_with_logits(logits, labels)


def _span_loss(made: Outputs, places: Sequence[Tensor]) -> Tensor:
    """The mean of both ends; a place beyond the text does not count."""
    length = made["start_logits"].shape[1]
    begin, end = (
        F.cross_entropy(made[name], place.flatten().clamp(0, length), ignore_index=length)
        for name, place in zip(("start_logits", "end_logits"), places, strict=True)
    )
    return (begin + end) / 2


def _continued(model: XLNet, family: Family, folder: Folder) -> Outputs:
    """Greedy decoding: each token is asked for at a place behind the text that no other token sees."""
    tokens = folder.input("input_ids")
    stem, steps = generated(folder, tokens.shape[1])
    found = list[Tensor]()
    for _ in range(steps):
        rows, length = tokens.shape[0], tokens.shape[1] + 1
        hidden = torch.zeros(rows, length, length, dtype=folder.dtype)
        hidden[:, :, -1] = 1
        # Its place is the last one, and one row of the mask is just that.
        call = Call(F.pad(tokens, (0, 1)), None, {"perm_mask": hidden, "target_mapping": hidden[:, :1]})
        found.append(model.head(_run(model, family, call, None).streams[-1][1])[:, 0])
        tokens = torch.cat((tokens, found[-1].argmax(-1, keepdim=True)), 1)
    return {f"{stem}sequences": tokens, f"{stem}step_logits": torch.stack(found, 1)} if found else {}


def _numbered(name: str, count: int) -> str:
    """`mems.1` of segment 2 is `mems.2.1`, `logits` is `logits.2`."""
    first, dot, rest = name.partition(".")
    return f"{first}.{count}{dot}{rest}"
