"""RETRO-pytorch: the golden folder, and other options against the equations, written token by token."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import gelu

from heed.core.errors import WeightsError
from heed.weights import Folder, replay
from heed.weights.rename import export
from heed.weights.replays.authors import retro
from tests.weights.support import GOLDEN, TOLERANCES, Options, Tensors, agree, linear, normed, write

RETRO = "retro/lm_retrieval"
PLAIN: Options = {
    "num_tokens": 17,
    "max_seq_len": 20,
    "enc_dim": 12,
    "dec_dim": 16,
    "dim_head": 8,
    "min_dim_head": 4,
    "enc_depth": 2,
    "dec_depth": 3,
    "chunk_size": 3,
    "pad_id": 0,
    "heads": 5,  # passed over
    "model_type": "retro",
    "dec_cross_attn_layers": [2, 3, 9],
    "enc_cross_attn_layers": None,
    "gated_rmsnorm": False,
    "use_deepnet": False,
}
HEADS = 8


def test_golden() -> None:
    wanted = load_file(GOLDEN / RETRO / "outputs.safetensors")
    agree(replay(GOLDEN / RETRO), wanted, 10 * TOLERANCES[RETRO]["absolute"])


def test_what_is_loaded_is_exported() -> None:
    folder = Folder.open(GOLDEN / RETRO)
    theirs = retro.RetroPytorch.load(folder.config)
    written = export(retro.model(folder, 3, 8), theirs.names(HEADS))
    assert written.keys() == folder.weights.keys()
    assert all(torch.equal(written[name], tensor) for name, tensor in folder.weights.items())


def drawn(c: Options) -> Tensors:
    """Weights of the constructor's names and shapes."""
    draw = torch.Generator().manual_seed(2)
    w: Tensors = {}

    def tensor(name: str, *shape: int) -> None:
        w[name] = torch.randn(shape, generator=draw, dtype=torch.float64) * (
            0.5 if len(shape) == 1 else shape[-1] ** -0.5
        )

    def norm(name: str, width: int) -> None:
        kinds = ("gamma", "weight") if c["gated_rmsnorm"] else ("weight", "bias") if c["use_deepnet"] else ("gamma",)
        for kind in kinds:
            tensor(f"{name}.{kind}", width)

    def attention(name: str, width: int, source: int) -> None:
        inner = HEADS * c["dim_head"]
        for part, size in (("to_q", width), ("to_k", source), ("to_v", source)):
            tensor(f"{name}.{part}.weight", inner, size)
        tensor(f"{name}.to_out.weight", width, inner)
        tensor(f"{name}.to_out.bias", width)

    def both(name: str, width: int, source: int) -> None:
        tensor(f"{name}.weight", width, source)
        tensor(f"{name}.bias", width)

    enc, dec = c["enc_dim"], c["dec_dim"]
    tensor("token_emb.weight", c["num_tokens"], enc)
    tensor("pos_emb.weight", c["max_seq_len"], enc)
    if enc != dec:
        both("to_decoder_model_dim", dec, enc)
    both("to_logits", c["num_tokens"], dec)
    both("encoder.project_out", dec, enc)
    for side, width in (("encoder", enc), ("decoder", dec)):
        if not c["use_deepnet"]:
            norm(f"{side}.norm_out", width)
        turned = torch.arange(0, c["min_dim_head"], 2).float() / c["min_dim_head"]
        w[f"{side}.rotary_pos_emb.inv_freq"] = (1.0 / 10000**turned).double()
        for layer in range(c[f"{side[:3]}_depth"]):
            name = f"{side}.layers.{layer}"
            named = c[f"{side[:3]}_cross_attn_layers"]
            parts = [0, 1, 2] if named is None or layer + 1 in named else [0, 2]
            for part in parts:
                norm(f"{name}.{part}.norm", width)
            attention(f"{name}.0.fn", width, width)
            if 1 in parts:
                crossing = f"{name}.1.fn" if side == "encoder" else f"{name}.1.fn.cross_attn"
                attention(crossing, width, dec)
                if side == "decoder":
                    tensor(f"{crossing}.null_k", HEADS * c["dim_head"])
                    tensor(f"{crossing}.null_v", HEADS * c["dim_head"])
            both(f"{name}.2.fn.ff.0", 4 * width, width)
            both(f"{name}.2.fn.ff.3", width, 4 * width)
    return w


class Reference:
    """The equations, one query at a time."""

    def __init__(self, c: Options, w: Tensors) -> None:
        self.c, self.w = c, w

    def norm(self, name: str, x: Tensor) -> Tensor:
        if self.c["use_deepnet"] and not self.c["gated_rmsnorm"]:
            return normed(self.w, name, x, 1e-5)
        y = x / x.square().mean(-1, keepdim=True).sqrt().clamp(min=1e-8) * self.w[f"{name}.gamma"]
        return y * torch.sigmoid(x * self.w[f"{name}.weight"]) if self.c["gated_rmsnorm"] else y

    def turn(self, x: Tensor, place: int) -> Tensor:
        """[heads, size] by a place: the first channels, c with c + n/2."""
        half = self.c["min_dim_head"] // 2
        angle = place * self.w["decoder.rotary_pos_emb.inv_freq"]
        a, b, rest = x[:, :half], x[:, half : 2 * half], x[:, 2 * half :]
        return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin(), rest), 1)

    def ask(self, name: str, x: Tensor, place: int, source: list[tuple[Tensor, int]], *, null: bool = False) -> Tensor:
        """One query over a source of vectors and their places."""
        heads = (HEADS, self.c["dim_head"])
        query = self.turn((self.w[f"{name}.to_q.weight"] @ x).view(heads), place)
        keys = [self.turn((self.w[f"{name}.to_k.weight"] @ y).view(heads), p) for y, p in source]
        values = [(self.w[f"{name}.to_v.weight"] @ y).view(heads) for y, _ in source]
        if null:
            keys, values = (
                [self.w[f"{name}.null_k"].view(heads), *keys],
                [self.w[f"{name}.null_v"].view(heads), *values],
            )
        score = torch.stack([(query * key).sum(1) for key in keys]) / heads[1] ** 0.5
        mixed = sum(p[:, None] * v for p, v in zip(score.softmax(0), values, strict=True))
        assert isinstance(mixed, Tensor)
        return linear(self.w, f"{name}.to_out", mixed.flatten())

    def wire(self, name: str, x: list[Tensor], part: object, alpha: float) -> list[Tensor]:
        """A part between its norm and the stream."""
        assert callable(part)
        if self.c["use_deepnet"]:
            made = part(x)
            return [self.norm(f"{name}.norm", y + alpha * z) for y, z in zip(made, x, strict=True)]
        made = part([self.norm(f"{name}.norm", z) for z in x])
        return [y + z for y, z in zip(made, x, strict=True)]

    def forward(self, name: str, x: list[Tensor]) -> list[Tensor]:
        return [linear(self.w, f"{name}.fn.ff.3", gelu(linear(self.w, f"{name}.fn.ff.0", y))) for y in x]

    def encode(self, ids: Tensor, chunk: list[Tensor]) -> list[Tensor]:
        """One neighbour beside its chunk."""
        x = [self.w["token_emb.weight"][i] for i in ids]
        n, m = self.c["enc_depth"], self.c["dec_depth"]
        alpha = self.c.get("enc_scale_residual") or 0.81 * (n**4 * m) ** (1 / 16)
        shown = [j for j, i in enumerate(ids) if int(i) != self.c["pad_id"]]
        for layer in range(n):
            name = f"encoder.layers.{layer}"

            def itself(x: list[Tensor], name: str = name) -> list[Tensor]:
                return [self.ask(f"{name}.0.fn", y, p, [(x[j], j) for j in shown]) for p, y in enumerate(x)]

            def cross(x: list[Tensor], name: str = name) -> list[Tensor]:
                return [
                    self.ask(f"{name}.1.fn", y, p, list(zip(chunk, range(99), strict=False))) for p, y in enumerate(x)
                ]

            x = self.wire(f"{name}.0", x, itself, alpha)
            if f"{name}.1.fn.to_q.weight" in self.w:
                x = self.wire(f"{name}.1", x, cross, alpha)
            x = self.wire(f"{name}.2", x, lambda x, name=name: self.forward(f"{name}.2", x), alpha)
        x = x if self.c["use_deepnet"] else [self.norm("encoder.norm_out", y) for y in x]
        return [linear(self.w, "encoder.project_out", y) for y in x]

    def served(self, name: str, x: list[Tensor], encoded: list[list[tuple[Tensor, int]]]) -> list[Tensor]:
        """Chunked cross-attention: the first query of a chunk turns to 2(C-1), the others do not."""
        size, made = self.c["chunk_size"], []
        for i, y in enumerate(x):
            chunk, place = (i + 1) // size - 1, 2 * (size - 1) if (i + 1) % size == 0 else 0
            made.append(self.ask(name, y, place, encoded[chunk], null=True) if chunk >= 0 else torch.zeros_like(y))
        return made

    def scores(self, tokens: Tensor, retrieved: Tensor | None) -> Tensor:
        """Of one row."""
        size, alpha = self.c["chunk_size"], self.c.get("dec_scale_residual") or (3 * self.c["dec_depth"]) ** 0.25
        x = [self.w["token_emb.weight"][i] + self.w["pos_emb.weight"][p] for p, i in enumerate(tokens)]
        if self.c["enc_dim"] != self.c["dec_dim"]:
            x = [linear(self.w, "to_decoder_model_dim", y) for y in x]
        encoded: list[list[tuple[Tensor, int]]] | None = None
        for layer in range(self.c["dec_depth"]):
            name = f"decoder.layers.{layer}"

            def itself(x: list[Tensor], name: str = name) -> list[Tensor]:
                return [self.ask(f"{name}.0.fn", y, p, [(x[j], j) for j in range(p + 1)]) for p, y in enumerate(x)]

            x = self.wire(f"{name}.0", x, itself, alpha)
            if retrieved is not None and f"{name}.1.fn.cross_attn.to_q.weight" in self.w:
                encoded = (
                    encoded
                    or [
                        [
                            (y, p)
                            for ids in found
                            if bool((ids != self.c["pad_id"]).any())  # else no token sees what comes out
                            for p, y in enumerate(self.encode(ids, x[u * size : u * size + size]))
                            if int(ids[p]) != self.c["pad_id"]
                        ]
                        for u, found in enumerate(retrieved)
                    ]
                )
                crossing, held = f"{name}.1.fn.cross_attn", encoded
                x = self.wire(f"{name}.1", x, lambda x, n=crossing, e=held: self.served(n, x, e), alpha)
            x = self.wire(f"{name}.2", x, lambda x, name=name: self.forward(f"{name}.2", x), alpha)
        x = x if self.c["use_deepnet"] else [self.norm("decoder.norm_out", y) for y in x]
        return torch.stack([linear(self.w, "to_logits", y) for y in x])


OTHERS: dict[str, Options] = {
    "plain": {},
    "gated": {"gated_rmsnorm": True, "chunk_size": 1, "enc_cross_attn_layers": [2]},
    "deepnet": {"use_deepnet": True, "chunk_size": 4, "enc_dim": 16},
    "both": {"use_deepnet": True, "gated_rmsnorm": True, "dec_scale_residual": 1.3, "enc_scale_residual": 0.7},
    "few": {"dec_cross_attn_layers": None, "enc_cross_attn_layers": [], "dec_depth": 1, "pad_id": 3, "dim_head": 4},
}


@pytest.mark.parametrize("options", OTHERS.values(), ids=OTHERS)
def test_other_options_against_the_equations(options: Options, tmp_path: Path) -> None:
    c: Options = {**PLAIN, **options}
    w, draw = drawn(c), torch.Generator().manual_seed(4)
    seq = torch.randint(17, (2, 8), generator=draw)
    ids = torch.randint(17, (2, 8 // c["chunk_size"], 2, 5), generator=draw)
    ids[1, 0, 0, 1:3] = c["pad_id"]
    ids[0, 0, 1] = c["pad_id"]
    ids[0, 1] = c["pad_id"]  # nothing of this chunk's neighbours is seen but the null key
    reference = Reference(c, w)
    wanted = {
        "logits": torch.stack([reference.scores(*row) for row in zip(seq, ids, strict=True)]),
        "logits_no_retrieval": torch.stack([reference.scores(row, None) for row in seq]),
    }
    agree(
        replay(write(tmp_path, c, w, {"seq": seq, "retrieved": ids}, wanted)),
        wanted,
        1e-7,  # the speeds of its rotation are float32
    )


def test_one_neighbour_each_may_come_without_its_dimension(tmp_path: Path) -> None:
    w, draw = drawn(PLAIN), torch.Generator().manual_seed(4)
    seq, ids = torch.randint(17, (2, 8), generator=draw), torch.randint(17, (2, 2, 1, 5), generator=draw)
    made = [
        replay(write(tmp_path / str(given.dim()), PLAIN, w, {"seq": seq, "retrieved": given}))["logits"]
        for given in (ids, ids[:, :, 0].contiguous())
    ]
    assert torch.equal(*made)


def test_a_text_shorter_than_a_chunk_has_no_neighbours(tmp_path: Path) -> None:
    c: Options = {**PLAIN, "use_deepnet": True}  # a part that adds nothing is normed all the same
    w, seq = drawn(c), torch.tensor([[3, 5]])
    made = replay(write(tmp_path, c, w, {"seq": seq, "retrieved": torch.zeros(1, 0, 2, 5, dtype=torch.long)}))
    wanted = Reference(c, w).scores(seq[0], torch.zeros(0, 2, 5, dtype=torch.long))
    assert torch.allclose(made["logits"][0], wanted, rtol=0, atol=1e-7)


def test_what_cannot_be_replayed_says_why(tmp_path: Path) -> None:
    seq, ids = torch.zeros(1, 8, dtype=torch.long), torch.ones(1, 2, 1, 5, dtype=torch.long)

    def refused(match: str, change: Options, found: Tensor = ids) -> None:
        c: Options = {**PLAIN, **change}
        folder = write(tmp_path / str(len(list(tmp_path.iterdir()))), c, drawn(PLAIN), {"seq": seq, "retrieved": found})
        with pytest.raises(WeightsError, match=match):
            replay(folder)

    refused("names none of the layers 1 to 3", {"dec_cross_attn_layers": [7]})
    refused(r"needed is \[1, 2, neighbours, length\]", {}, ids[:, :1])
    refused("chunk_size is 0", {"chunk_size": 0})
    refused("null_kv is False", {"null_kv": False})
    refused("must have rows for whole heads of 7", {"dim_head": 7})
    refused("claims 902 layers", {"dec_depth": 900})
    refused(r"decoder.layers.0.0.norm.weight \[16\] is missing", {"use_deepnet": True})


def test_without_neighbours_it_is_a_plain_decoder(tmp_path: Path) -> None:
    folder = Folder.open(GOLDEN / RETRO)
    tokens = folder.input("seq")
    write(tmp_path, json.loads((GOLDEN / RETRO / "config.json").read_text()), dict(folder.weights), {"seq": tokens})
    made = replay(tmp_path)
    wanted = load_file(GOLDEN / RETRO / "outputs.safetensors")["logits_no_retrieval"]
    assert (made["logits_no_retrieval"] - wanted).abs().max().item() <= 10 * TOLERANCES[RETRO]["absolute"]
