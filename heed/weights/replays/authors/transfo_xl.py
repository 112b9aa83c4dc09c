"""Recorded runs of Transformer-XL: several calls, each a segment of its own, that hand their memory on.

Segments of a heed model have one length. A call of the reference is a segment however long it is, and generation goes
token by token; so before each call the mixers are cut to its length, and are given the memory as their state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, cast

import torch
from torch import Tensor

from ....core.contract import Where
from ....core.errors import WeightsError
from ....core.spec import Slot
from ....core.state import Log
from ....mixers import TransformerXLAttention
from ....models import AdaptiveDecoder, Decoder
from ....parts.look import look
from ....parts.outputs.loss import NO_LABEL
from ...families import open_
from ...families.transfo_xl import TransfoXL
from ...formats.folder import INPUTS, Folder
from ..inputs import Outputs, sequence

Memory: TypeAlias = "list[Tensor]"  # of each layer, the streams that it was given before, [B, M, D]
STEPS = 10  # tokens to generate where no output says how many


def outputs(folder: Folder) -> Outputs:
    """Of transformers' layout `log_probs`, `hidden_states`, `attentions` and `mems` of every call, `losses` and `loss`,
    and a greedy continuation; of the authors' `nll` and `mems`.
    """
    opened = open_(folder.checkpoint)
    replayed = _Replay(folder, cast(Decoder, opened.model), cast(TransfoXL, opened.family))
    return replayed.authors() if replayed.family.n_token is not None else replayed.transformers()


@dataclass(frozen=True)
class _Call:
    """What one call gave."""

    streams: list[Tensor]  # before the first layer and after each, [B, T, D]
    weights: list[Tensor]  # of each layer, [B, H, T, M + T]
    log_probs: Tensor  # [B, T, vocabulary]
    memory: Memory  # for the next call


@dataclass(frozen=True)
class _Replay:
    folder: Folder
    model: Decoder
    family: TransfoXL

    def transformers(self) -> Outputs:
        stems = self._stems("input_ids")
        first = sequence(self.folder, f"input_ids{stems[0]}")
        memory, made, calls = self._first(first), dict[str, Tensor](), list[_Call]()
        for stem in stems:
            tokens = sequence(self.folder, f"input_ids{stem}")
            if f"labels{stem}" in self.folder.inputs:
                made |= self._losses(tokens, sequence(self.folder, f"labels{stem}"), memory, stem)
            called = self.call(tokens, memory)
            memory = called.memory
            made[f"log_probs{stem}"] = called.log_probs
            made |= {f"hidden_states{stem}.{depth}": x for depth, x in enumerate(called.streams)}
            made |= {f"attentions{stem}.{layer}": w for layer, w in enumerate(called.weights)}
            made |= self._remembered(memory, stem)
            calls.append(called)
        made |= self._continued(calls[-1])
        return made | self._losses(first, first, self.zeros(first), "_first_segment")

    def authors(self) -> Outputs:
        stems = self._stems("tokens")
        memory, made = self.empty(sequence(self.folder, f"tokens{stems[0]}"), more=1), dict[str, Tensor]()
        for stem in stems:
            tokens = sequence(self.folder, f"tokens{stem}")
            called = self.call(tokens[:, :-1], memory)
            memory = called.memory
            made[f"nll{stem}"] = -called.log_probs.gather(-1, tokens[:, 1:, None])[..., 0]
            made |= self._remembered(memory, stem)
        return made

    def call(self, tokens: Tensor, memory: Memory) -> _Call:
        """One segment: these tokens beside what is remembered. A memory of one entry more than layers keeps the end."""
        rows, length = tokens.shape
        held = memory[0].shape[1]
        first = -(-held // length) * length  # the order of the first token: a segment begins here
        where = Where.run(rows, length, start=first)
        streams, weights = [self.model.embeddings(tokens, where)], list[Tensor]()
        for block, before in zip(self.model.stack.layers, memory, strict=False):
            mixer = cast(TransformerXLAttention, block.mixer)
            mixer.cut(length)
            mixer.begins = "empty"  # all that there is is remembered
            normed = block.wiring.norms[0](before) if self.family.pre_lnorm else before
            log = _log(mixer, normed, Where.run(rows, held, start=first - held))
            with look(block, "mixer.weights") as seen:
                streams.append(block(streams[-1], where, (log, *block.start(rows)[1:]))[0])
            weights += seen["mixer.weights"]
        logits = self.model.head(self.model.stack.ends.leave(streams[-1]))
        log_probs = logits if isinstance(self.model, AdaptiveDecoder) else logits.log_softmax(-1)
        kept = [torch.cat(pair, 1) for pair in zip(memory, streams, strict=False)]
        most = self.family.mem_len
        return _Call(streams, weights, log_probs, [x[:, max(0, x.shape[1] - most) :] for x in kept])

    def zeros(self, tokens: Tensor) -> Memory:
        """With which transformers begins."""
        shape = len(tokens), self.family.mem_len, self.family.d_model
        return [torch.zeros(shape, dtype=self.folder.dtype) for _ in range(self.family.n_layer)]

    def empty(self, tokens: Tensor, more: int = 0) -> Memory:
        """With which the authors begin."""
        shape = len(tokens), 0, self.family.d_model
        return [torch.zeros(shape, dtype=self.folder.dtype) for _ in range(self.family.n_layer + more)]

    def _first(self, tokens: Tensor) -> Memory:
        """The memory before the first call: an input, or zeros, or nothing; of those two the record tells which."""
        names = [f"mems.{layer}" for layer in range(self.family.n_layer)]
        if names[0] in self.folder.inputs:
            given = [self.folder.input(name) for name in names]
            shape = given[0].shape
            if any(x.shape != shape for x in given) or shape[1:] != (len(tokens), self.family.d_model):
                raise WeightsError(f"{self.folder.path / INPUTS}: mems must be [tokens, rows, {self.family.d_model}]")
            return [x.transpose(0, 1) for x in given]
        zeros, nothing = self.zeros(tokens), self.empty(tokens)
        wanted = self.folder.wanted or ()
        for name, axis, full in (
            ("attentions.0.0", -1, self.family.mem_len + tokens.shape[1]),
            ("mems.0.0", 0, self.family.mem_len),
        ):
            if name in wanted and (axis == -1 or tokens.shape[1] < full):
                return zeros if self.folder.extra(name).shape[axis] == full else nothing
        if "log_probs.0" not in wanted:
            return zeros
        truth = self.folder.extra("log_probs.0")
        return min(zeros, nothing, key=lambda memory: float((self.call(tokens, memory).log_probs - truth).abs().max()))

    def _remembered(self, memory: Memory, stem: str) -> Outputs:
        if not self.family.mem_len:
            return {}
        return {f"mems{stem}.{layer}": x.transpose(0, 1).contiguous() for layer, x in enumerate(memory)}

    def _losses(self, tokens: Tensor, labels: Tensor, memory: Memory, stem: str) -> Outputs:
        """-log p of every label, as transformers lists them: those of the first cluster first, of no label last."""
        labels = labels[:, 1:].clone()
        if not labels.shape[1]:
            return {}  # nothing follows a single token
        if bool((labels[0] == NO_LABEL).all()):
            labels[0, 0] = int(cast(int, self.folder.config.get("eos_token_id", 0)))  # so that there is a mean
        log_probs, flat = self.call(tokens, memory).log_probs[:, :-1], labels.flatten()
        found = -log_probs.flatten(0, 1).gather(1, flat.clamp(min=0)[:, None])[:, 0]
        found = found.masked_fill(flat == NO_LABEL, 0)
        if self.family.cutoffs:
            cluster = torch.bucketize(flat, torch.tensor(self.family.cutoffs), right=True)
            found = found[cluster.masked_fill(flat == NO_LABEL, len(self.family.cutoffs) + 1).argsort(stable=True)]
        return {f"losses{stem}": found.view(labels.shape), f"loss{stem}": found[found != 0].mean()}

    def _continued(self, called: _Call) -> Outputs:
        """Greedy decoding, each token a segment of its own."""
        steps = STEPS
        if self.folder.wanted is not None:
            names = [name for name in ("generate.step_log_probs", "generate.new_tokens") if self.folder.wants(name)]
            steps = self.folder.extra(names[0]).shape[1] if names else 0
        written, found = list[Tensor](), list[Tensor]()
        for _ in range(steps):
            found.append(called.log_probs[:, -1])
            written.append(found[-1].argmax(-1))
            called = self.call(written[-1][:, None], called.memory)
        if not steps:
            return {}
        return {"generate.new_tokens": torch.stack(written, 1), "generate.step_log_probs": torch.stack(found, 1)}

    def _stems(self, name: str) -> list[str]:
        """How the names of the calls' inputs end: .0, .1 and so on, or not at all if there is one."""
        known = {name, "labels", "mems"}
        strange = sorted(key for key in self.folder.inputs if key.partition(".")[0] not in known)
        if strange:
            raise WeightsError(
                f"{self.folder.path / INPUTS} holds {', '.join(strange[:3])}, which heed does not feed to such a model"
            )
        stems = sorted((key.removeprefix(name) for key in self.folder.inputs if key.startswith(name)), key=_number)
        if not stems:
            raise WeightsError(f"{self.folder.path / INPUTS} has no {name}.0")
        return stems


def _log(mixer: TransformerXLAttention, states: Tensor, where: Where) -> Log:
    """The state of a mixer that was given these."""
    slot = cast(Slot, mixer.spec())
    return Log(where.order, where.position, states, cap=slot.entries.cap)


def _number(stem: str) -> int:
    return int(stem[1:]) if stem[1:].isdecimal() else -1
