"""torch.nn.Transformer and the Annotated Transformer: golden folders, other sizes and options, padding anywhere."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from heed.core.contract import Given, Where
from heed.core.errors import WeightsError
from heed.core.state import Seen
from heed.models.seq2seq import Seq2seq
from heed.weights import Folder, replay
from heed.weights.rename import export
from heed.weights.replays.authors.transformer import ANNOTATED_NAMES, TORCH_NAMES, annotated_model, torch_model
from heed.weights.replays.inputs import Padded
from tests.weights.support import EXACT, GOLDEN, TOLERANCES, Tensors, write

TORCH_CASES = ("transformer/postln_paper", "transformer/postln_torch_final_norm")
CASES = (*TORCH_CASES, "annotated_transformer/seq2seq")


def model_of(folder: Folder) -> Seq2seq:
    return torch_model(folder) if folder.family == "transformer" else annotated_model(folder)


def agree(made: Tensors, wanted: Tensors, tolerance: float, real: Tensors) -> None:
    """Equal where there are tokens, and equal in shape everywhere."""
    assert made.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert (made[name].shape, made[name].dtype) == (tensor.shape, tensor.dtype), name
        gap = (made[name].double() - tensor.double()).abs()
        gap = gap[real[name]] if name in real else gap
        assert gap.numel(), name
        assert gap.max().item() <= tolerance, f"{name} differs by {gap.max().item():.2g}"


def real_tokens(inputs: Tensors) -> Tensors:
    """Where to compare, by output."""
    if "src_mask" in inputs:
        return {"memory": inputs["src_mask"][:, 0]}
    source, target = ~inputs["src_key_padding_mask"], ~inputs["tgt_key_padding_mask"]
    return {"memory": source, "decoder_out": target, "logits": target}


# --- golden folders ---


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str) -> None:
    wanted, inputs = (load_file(GOLDEN / case / f"{name}.safetensors") for name in ("outputs", "inputs"))
    made = replay(GOLDEN / case)
    agree(made, wanted, 10 * TOLERANCES[case]["absolute"], real_tokens(inputs))
    for name in wanted.keys() & {"generate.sequences"}:
        assert torch.equal(made[name], wanted[name])


@pytest.mark.parametrize("case", CASES)
def test_what_is_loaded_is_exported(case: str) -> None:
    folder = Folder.open(GOLDEN / case)
    written = export(model_of(folder), TORCH_NAMES if folder.family == "transformer" else ANNOTATED_NAMES)
    assert written.keys() == folder.weights.keys()
    assert all(torch.equal(written[name], tensor) for name, tensor in folder.weights.items())


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_whole_and_in_pieces(case: str, seed: int) -> None:
    folder = Folder.open(GOLDEN / case)
    model = model_of(folder)
    source, target = folder.input("src"), folder.input("tgt")
    rows, length = target.shape
    with torch.no_grad():
        encoder_output = model.encode(source, Where.ragged([14, 9]))
        where = Where.run(rows, length).give(encoder_output=encoder_output)
        whole, _ = model(target, where)
        state, pieces = model.start(rows, Given(encoder_output=encoder_output)), []
        chosen = torch.randperm(length - 1, generator=torch.Generator().manual_seed(seed))[:4].sort().values + 1
        for begin, end in zip([0, *chosen.tolist()], [*chosen.tolist(), length], strict=True):
            piece, after = model(target[:, begin:end], where.cut(begin, end), state)
            assert after is not None
            state = after
            pieces.append(piece)
    gap = (torch.cat(pieces, 1) - whole).abs().max().item()
    assert gap <= 10 * TOLERANCES[case]["absolute"]  # sums in another order, as between two implementations


@pytest.mark.parametrize("case", TORCH_CASES)
def test_without_outputs_everything_is_made(tmp_path: Path, case: str) -> None:
    shutil.copytree(GOLDEN / case, tmp_path / "bare", ignore=shutil.ignore_patterns("outputs.*"))
    made, wanted = replay(tmp_path / "bare"), replay(GOLDEN / case)
    assert made.keys() == wanted.keys()
    assert all(torch.equal(made[name], tensor) for name, tensor in wanted.items())  # ten steps, as it happens


# --- other transformers, by torch itself ---


def sinusoids(length: int, width: int) -> Tensor:
    place = torch.arange(length, dtype=torch.float64)[:, None]
    angle = place / 10000 ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
    return torch.stack((angle.sin(), angle.cos()), -1).flatten(1)


class Reference(nn.Module):
    """torch.nn.Transformer between embeddings and a generator, in float64."""

    def __init__(self, c: dict[str, Any]) -> None:
        super().__init__()
        options = {
            "dim_feedforward": c["ff"],
            "dropout": 0.0,
            "activation": c["act"],
            "layer_norm_eps": c["eps"],
            "batch_first": True,
            "norm_first": c["norm_first"],
        }
        norms = [nn.LayerNorm(c["d"], eps=c["eps"]) if c["final_norm"] else None for _ in range(2)]
        reader = nn.TransformerEncoderLayer(c["d"], c["h"], **options)
        writer = nn.TransformerDecoderLayer(c["d"], c["h"], **options)
        self.transformer = nn.Transformer(
            c["d"],
            c["h"],
            batch_first=True,
            custom_encoder=nn.TransformerEncoder(reader, c["ne"], norms[0], enable_nested_tensor=False),
            custom_decoder=nn.TransformerDecoder(writer, c["nd"], norms[1]),
        )
        self.src_embed, self.tgt_embed = nn.Embedding(c["vs"], c["d"]), nn.Embedding(c["vt"], c["d"])
        self.generator = nn.Linear(c["d"], c["vt"])
        for parameter in self.parameters():  # norms and biases too must matter
            nn.init.normal_(parameter, std=0.3)
        self.double()

    def forward(self, inputs: Tensors, steps: int) -> Tensors:
        hidden = inputs.get("src_key_padding_mask")
        encoder_output = self.transformer.encoder(
            self.placed(self.src_embed, inputs["src"]), src_key_padding_mask=hidden
        )
        stream = self.decoded(inputs["tgt"], encoder_output, hidden, inputs.get("tgt_key_padding_mask"))
        made = {"memory": encoder_output, "decoder_out": stream, "logits": self.generator(stream)}
        tokens, logits = torch.full((len(encoder_output), 1), 2), []
        for _ in range(steps):
            logits.append(self.generator(self.decoded(tokens, encoder_output, hidden)[:, -1]))
            tokens = torch.cat((tokens, logits[-1].argmax(-1, keepdim=True)), 1)
        return made | {"generate.sequences": tokens, "generate.step_logits": torch.stack(logits, 1)}

    def decoded(
        self, target: Tensor, encoder_output: Tensor, hidden: Tensor | None, padding: Tensor | None = None
    ) -> Tensor:
        ahead = torch.ones(target.shape[1], target.shape[1]).triu(1).bool()
        x = self.placed(self.tgt_embed, target)
        return self.transformer.decoder(
            x, encoder_output, tgt_mask=ahead, tgt_key_padding_mask=padding, memory_key_padding_mask=hidden
        )

    def placed(self, table: nn.Embedding, tokens: Tensor) -> Tensor:
        x = table(tokens)
        return x * x.shape[-1] ** 0.5 + sinusoids(*x.shape[1:])


BASE: dict[str, Any] = {"vs": 23, "vt": 19, "d": 12, "h": 3, "ne": 2, "nd": 2, "ff": 20, "act": "relu", "eps": 1e-5}
BASE |= {"norm_first": False, "final_norm": True, "model_type": "transformer"}
OPTIONS: dict[str, dict[str, Any]] = {
    "gelu": {"act": "gelu"},
    "deeper decoder": {"ne": 1, "nd": 3, "final_norm": False},
    "deeper encoder": {"ne": 3, "nd": 1, "d": 8, "h": 4},
    "pre-norm": {"norm_first": True},
    "pre-norm without final norms": {"norm_first": True, "final_norm": False, "act": "gelu"},
    "large eps": {"eps": 0.1, "vs": 5, "vt": 41},
    "one vocabulary size": {"vs": 19},
}
T, F = True, False
PADDING: dict[str, Tensors] = {
    "none": {},
    "right": {"src_key_padding_mask": torch.tensor([[F] * 6, [F, F, F, T, T, T]])},
    "left": {
        "src_key_padding_mask": torch.tensor([[T, T, F, F, F, F], [F] * 6]),
        "tgt_key_padding_mask": torch.tensor([[F] * 5, [T, T, F, F, F]]),
    },
    "in the middle": {
        "src_key_padding_mask": torch.tensor([[F, T, F, T, T, F], [T, F, F, F, T, F]]),
        "tgt_key_padding_mask": torch.tensor([[F, T, F, F, T], [F, F, T, T, F]]),
    },
}


@pytest.mark.parametrize("padding", PADDING.values(), ids=PADDING)
@pytest.mark.parametrize("option", OPTIONS.values(), ids=OPTIONS)
def test_other_transformers(tmp_path: Path, option: dict[str, Any], padding: Tensors) -> None:
    torch.manual_seed(len(option) + len(padding))
    config = BASE | option
    reference = Reference(config)
    inputs = {"src": torch.randint(config["vs"], (2, 6)), "tgt": torch.randint(config["vt"], (2, 5))} | padding
    with torch.no_grad():
        wanted = reference(inputs, steps=7)
    folder = write(tmp_path / "x", config, reference.state_dict(), inputs, wanted)
    shown = {"src_key_padding_mask": torch.zeros(2, 6).bool(), "tgt_key_padding_mask": torch.zeros(2, 5).bool()}
    agree(replay(folder), wanted, EXACT, real_tokens(shown | inputs))


def test_a_part_of_the_outputs(tmp_path: Path) -> None:
    reference = Reference(BASE)
    inputs = {"src": torch.randint(23, (2, 6)), "tgt": torch.randint(19, (2, 5))}
    with torch.no_grad():
        made = reference(inputs, steps=4)
    for name in ("memory", "generate.sequences", "generate.step_logits"):
        folder = write(tmp_path / name, BASE, reference.state_dict(), inputs, {name: made[name]})
        agree(replay(folder), {name: made[name]}, EXACT, {})


# --- the Annotated Transformer's masks ---


def annotated(tmp_path: Path, **inputs: Tensor) -> Path:
    golden = GOLDEN / "annotated_transformer/seq2seq"
    config = json.loads((golden / "config.json").read_text())
    weights, given = (load_file(golden / f"{name}.safetensors") for name in ("model", "inputs"))
    weights["src_embed.1.pe"] = torch.zeros(1, 50, 32)  # its buffers are in some checkpoints
    return write(tmp_path / "x", config, weights, given | inputs)


def test_padding_is_read_off_the_target_mask(tmp_path: Path) -> None:
    source, target = (
        torch.tensor(rows) for rows in ([[F] * 3 + [T] * 11, [T, F] * 7], [[T] * 11, [F, T, T] + [T] * 8])
    )
    triangle = torch.ones(11, 11).tril().bool()
    made = replay(annotated(tmp_path, src_mask=source[:, None], tgt_mask=triangle & target[:, None]))
    folder = Folder.open(tmp_path / "x")
    model = annotated_model(folder)
    with torch.no_grad():
        for row in range(2):  # each row alone, its real tokens only, at the columns that they have
            columns = source[row].nonzero().T
            here = Where(torch.arange(columns.shape[1])[None], columns)
            encoder_output = model.encode(folder.input("src")[row, columns[0]][None], here)
            shown = target[row].nonzero().T
            where = Where(torch.arange(shown.shape[1])[None], shown).give(
                encoder_output=Seen.of(here, *encoder_output.parts)
            )
            logits, _ = model(folder.input("tgt")[row, shown[0]][None], where)
            gap = (made["log_probs"][row, shown[0]] - logits[0].log_softmax(-1)).abs().max().item()
            assert gap <= 10 * TOLERANCES["annotated_transformer/seq2seq"]["absolute"]


def test_a_target_mask_that_looks_ahead_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="neither causal nor causal with padding"):
        replay(annotated(tmp_path, tgt_mask=torch.ones(1, 11, 11).bool()))
    window = torch.ones(1, 11, 11).tril().triu(-3).bool()
    with pytest.raises(WeightsError, match="neither causal"):
        replay(annotated(tmp_path, tgt_mask=window))
    with pytest.raises(WeightsError, match=r"src_mask has the shape \[2, 1, 13\]; needed is \[2, 1, 14\]"):
        replay(annotated(tmp_path, src_mask=torch.ones(2, 1, 13).bool()))


# --- padding ---


def test_tokens_move_to_the_front_and_back() -> None:
    padded = Padded.of(torch.tensor([[F, T, F, T], [T, T, T, T], [F, F, F, F]]))
    x = torch.arange(12).reshape(3, 4)
    assert padded.aligned(x)[0].tolist() == [1, 3, 0, 2]
    assert torch.equal(padded.back(padded.aligned(x)), x)
    assert torch.equal(padded.back(padded.aligned(x[..., None].expand(3, 4, 5)))[..., 2], x)
    assert padded.where.order.tolist() == [[1, 3, -1, -1], [0, 1, 2, 3], [-1] * 4]
    assert padded.where.position.tolist() == [[1, 3, 0, 0], [0, 1, 2, 3], [0] * 4]


# --- what is wrong with a folder ---


def changed(tmp_path: Path, **change: Any) -> Path:
    """A golden folder with something else in its config or, by name with dots, in its weights or inputs."""
    golden = GOLDEN / TORCH_CASES[0]
    config = json.loads((golden / "config.json").read_text())
    weights, inputs = (load_file(golden / f"{name}.safetensors") for name in ("model", "inputs"))
    for name, value in change.items():
        home = inputs if name in inputs else weights if "." in name else config
        if value is None:
            del home[name]
        else:
            home[name] = value
    return write(tmp_path / "x", config, weights, inputs)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a text for a number": ({"d": "32"}, "d is '32'"),
    "two problems": ({"vs": 0, "act": "tanh"}, "2 problems"),
    "a missing key": ({"ff": None}, "ff is missing"),
    "heads": ({"h": 5}, "does not divide into 5 heads"),
    "an odd width": ({"d": 31, "h": 1}, "come in pairs"),
    "width": ({"d": 10**15}, "claims 4 layers of width 1000000000000000"),
    "depth": ({"ne": 10**9}, "claims 1000000002 layers"),
    "hidden": ({"ff": 10**18}, "cannot be built"),
    "vocabulary": ({"vs": 10**12}, r"src_embed.weight has the shape \[99, 32\]"),
    "no final norm": ({"final_norm": True}, r"transformer.encoder.norm.weight \[32\] is missing"),
    "a tensor": ({"generator.bias": None}, r"generator.bias \[89\] is missing"),
    "tokens": ({"tgt": torch.zeros(5, dtype=torch.long)}, r"tgt has the shape \[5\]; needed is \[rows, tokens\]"),
    "a mask": ({"src_key_padding_mask": torch.zeros(2, 3).bool()}, "src_key_padding_mask has the shape"),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_folder_is_explained(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(WeightsError, match=message):
        replay(changed(tmp_path, **change))


def test_all_that_is_wrong_with_the_weights_is_told_at_once(tmp_path: Path) -> None:
    change = {"generator.bias": None, "generator.bais": torch.zeros(89), "tgt_embed.weight": torch.zeros(89, 3)}
    with pytest.raises(WeightsError) as caught:
        replay(changed(tmp_path, **change))
    for part in ("generator.bias [89] is missing", "generator.bais [89] is unknown", "[89, 3], needed is [89, 32]"):
        assert part in str(caught.value)
