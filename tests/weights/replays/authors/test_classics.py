"""Golden folders replay within what their references state; made-up ones with other sizes and options do so, too."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from heed.core.errors import ConfigError, WeightsError
from heed.weights import Folder, replay
from heed.weights.replays.replay import REPLAYS
from tests.weights.support import GOLDEN, TOLERANCES, Tensors, write

CASES = (
    *("bahdanau/additive_attention", "bahdanau/gru_seq2seq", "dot_product/scaled", "nadaraya_watson/kernels"),
    "sparse/patterns",
)
EXACT = 1e-14  # float64 rounding of sums of a few terms of size one


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + 31 * len(shape)))


def agree(made: Tensors, wanted: Tensors, tolerance: float = EXACT) -> None:
    assert made.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert made[name].dtype == tensor.dtype, name
        assert made[name].shape == tensor.shape, name
        assert torch.equal(made[name].isnan(), tensor.isnan()), name
        gap = (made[name].double() - tensor.double()).nan_to_num().abs().max().item()
        assert gap <= tolerance, f"{name} differs by {gap:.2g}"


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str) -> None:
    wanted = load_file(GOLDEN / case / "outputs.safetensors")
    agree(replay(GOLDEN / case), wanted, 10 * TOLERANCES[case]["absolute"])


def test_every_golden_case_has_a_tolerance() -> None:
    cases = {str(path.parent.relative_to(GOLDEN)) for path in GOLDEN.rglob("config.json")}
    assert cases == TOLERANCES.keys()


# --- the d2l book's attention, written out --------------------------------------------------------


def book(score: Tensor, values: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    """Weights and outputs; a hidden score becomes -1e6, whatever the rest of its row is."""
    score = score.clone()
    for b, t, j in torch.cartesian_prod(*(torch.arange(n) for n in score.shape)).tolist():
        limit = math.inf if lengths is None else float(lengths[b] if lengths.dim() == 1 else lengths[b, t])
        if j >= limit:
            score[b, t, j] = -1e6
    weight = score.exp() / score.exp().sum(-1, keepdim=True) if lengths is None else torch.softmax(score, -1)
    return weight, weight @ values


LENGTHS = {
    "absent": None,
    "per row": torch.tensor([3, 6]),
    "per query": torch.tensor([[1, 2, 3, 4], [6, 5, 0, 1]]),
    "nothing to look at": torch.tensor([0, 2]),
    "more than there are": torch.tensor([99, 1]),
    "short integers": torch.tensor([2, 5], dtype=torch.int32),
}


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("family", ["bahdanau", "dot_product"])
def test_other_attention(tmp_path: Path, family: str, lengths: Tensor | None) -> None:
    query_size, key_size, hidden = (5, 3, 7) if family == "bahdanau" else (5, 5, 0)
    inputs = {
        "queries": drawn(2, 4, query_size),
        "keys": drawn(2, 6, key_size, seed=1),
        "values": drawn(2, 6, 2, seed=2),
    }
    weights: Tensors = {}
    config: dict[str, Any] = {"model_type": family}
    if family == "bahdanau":
        config |= {"query_size": query_size, "key_size": key_size, "num_hiddens": hidden, "dropout": 0.1}
        weights = {
            "W_q.weight": drawn(hidden, query_size),
            "W_k.weight": drawn(hidden, key_size),
            "w_v.weight": drawn(1, hidden),
        }
        both = (inputs["queries"] @ weights["W_q.weight"].T)[:, :, None] + (inputs["keys"] @ weights["W_k.weight"].T)[
            :, None
        ]
        score = (both.tanh() * weights["w_v.weight"][0]).sum(-1)
    else:
        score = torch.einsum("bti,bni->btn", inputs["queries"], inputs["keys"]) / math.sqrt(key_size)
    if lengths is not None:
        inputs["valid_lens"] = lengths
    weight, output = book(score, inputs["values"], lengths)
    free, pooled = book(score, inputs["values"], None)
    wanted = {"attention_weights": weight, "output": output, "attention_weights_nomask": free, "output_nomask": pooled}
    agree(replay(write(tmp_path / "all", config, weights, inputs)), wanted)
    only = {"output": output}
    agree(replay(write(tmp_path / "one", config, weights, inputs, only)), only)


def test_an_empty_row_is_the_plain_mean_in_the_book(tmp_path: Path) -> None:
    inputs = {
        "queries": drawn(1, 2, 3),
        "keys": drawn(1, 4, 3),
        "values": drawn(1, 4, 2),
        "valid_lens": torch.tensor([0]),
    }
    made = replay(write(tmp_path, {"model_type": "dot_product"}, {}, inputs))
    assert (made["attention_weights"] == 1 / 4).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_weights_choose_the_precision(tmp_path: Path, dtype: torch.dtype) -> None:
    config = {"model_type": "bahdanau", "query_size": 3, "key_size": 2, "num_hiddens": 4}
    weights = {"W_q.weight": drawn(4, 3), "W_k.weight": drawn(4, 2), "w_v.weight": drawn(1, 4)}
    inputs = {"queries": drawn(1, 2, 3), "keys": drawn(1, 5, 2), "values": drawn(1, 5, 2)}
    folder = write(tmp_path, config, {name: tensor.to(dtype) for name, tensor in weights.items()}, inputs)
    made = replay(folder)
    assert {tensor.dtype for tensor in made.values()} == {torch.promote_types(dtype, torch.float32)}
    assert not any(tensor.requires_grad for tensor in made.values())


# --- kernel regression ----------------------------------------------------------------------------


def regression(inputs: Tensors, kernel: str, width: float = 1.0) -> tuple[Tensor, Tensor]:
    """[keys, queries] weights and their predictions, one query after another; 0/0 is NaN as it is in the book."""
    columns = []
    for x in inputs["x_val"].tolist():
        gap = [abs(other - x) / width for other in inputs["x_train"].tolist()]
        raw = {
            "gaussian": [math.exp(-(u**2) / 2) for u in gap],
            "boxcar": [float(u < 1) for u in gap],
            "constant": [1.0 for _ in gap],
            "epanechikov": [max(0.0, 1 - u) for u in gap],
        }[kernel]
        total = math.fsum(raw)
        columns.append([part / total if total else math.nan for part in raw])
    weight = torch.tensor(columns, dtype=torch.float64).T
    return weight, inputs["y_train"] @ weight


@pytest.mark.parametrize("kernels", [["epanechikov"], ["constant", "boxcar"], ["gaussian", "epanechikov", "boxcar"]])
@pytest.mark.parametrize("width", [None, 0.1, 3])
def test_other_kernels(tmp_path: Path, kernels: list[str], width: float | None) -> None:
    inputs = {
        "x_train": 3 * drawn(9),
        "y_train": drawn(9, seed=1),
        "x_val": torch.linspace(-60, 60, 5, dtype=torch.float64),
    }
    config: dict[str, Any] = {"model_type": "nadaraya_watson", "kernels": kernels}
    wanted: Tensors = {}
    for kernel in kernels:
        wanted[f"weights.{kernel}"], wanted[f"y_hat.{kernel}"] = regression(inputs, kernel)
    if width is not None:
        config["gaussian_width"] = width
        wanted["weights.gaussian_width"], wanted["y_hat.gaussian_width"] = regression(inputs, "gaussian", width)
    agree(replay(write(tmp_path, config, {}, inputs)), wanted)
    if "boxcar" in kernels:
        assert wanted["y_hat.boxcar"].isnan().any()  # the case without support is among them


# --- sparse patterns ------------------------------------------------------------------------------


def allowed(name: str, config: dict[str, int], head: int, i: int, j: int) -> bool:
    """Whether token i looks at token j, from the words of the reference's own description."""
    context, block = config["local_attn_ctx"], config["blocksize"]
    if j > i:
        return False
    if name == "local":
        return i - j < context
    if name == "strided":
        return (i - j) % context == 0
    if name == "fixed":
        per_group = context // block
        downwards = list(range(per_group - 1, -1, -1))
        turn, verticals = head % config["num_verts"], config["vertsize"]
        chosen = downwards[turn * verticals : (turn + 1) * verticals]
        return (i // block) // per_group == (j // block) // per_group or (j // block) % per_group in chosen
    return True


def attention(inputs: Tensors, visible: Tensor, heads: int) -> Tensor:
    """Head by head. [rows, tokens, width]"""
    parts = []
    for h, (q, k, v) in enumerate(zip(*(inputs[name].chunk(heads, -1) for name in "qkv"), strict=True)):
        score = torch.einsum("bti,bni->btn", q, k) / math.sqrt(q.shape[-1])
        parts.append(torch.where(visible[h], score, -1e9).softmax(-1) @ v)
    return torch.cat(parts, -1)


@pytest.mark.parametrize(
    "options",
    [
        {"heads": 4, "local_attn_ctx": 8, "blocksize": 2, "num_verts": 2, "vertsize": 2},
        {"heads": 6, "local_attn_ctx": 6, "blocksize": 3, "num_verts": 2, "vertsize": 1},
        {"heads": 2, "local_attn_ctx": 4, "blocksize": 1, "num_verts": 1, "vertsize": 4},
        {"heads": 1, "local_attn_ctx": 48, "blocksize": 4, "num_verts": 1, "vertsize": 1},
        {"heads": 3, "local_attn_ctx": 1, "blocksize": 1, "num_verts": 1, "vertsize": 1},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
@pytest.mark.parametrize("tokens", [24, 19])
def test_other_patterns(tmp_path: Path, options: dict[str, int], tokens: int) -> None:
    heads = options["heads"]
    inputs = {name: drawn(2, tokens, 5 * heads, seed=seed) for seed, name in enumerate("qkv")}
    wanted: Tensors = {}
    for name in ("all", "local", "strided", "fixed"):
        grid = [[[allowed(name, options, h, i, j) for j in range(tokens)] for i in range(tokens)] for h in range(heads)]
        visible = torch.tensor(grid)
        wanted[f"mask.{name}"] = visible if name == "fixed" else visible[0]
        wanted[f"blocksparse.{name}"] = attention(inputs, visible, heads)
        if name != "fixed":
            wanted[f"dense.{name}"] = wanted[f"blocksparse.{name}"].clone()
    config = {"model_type": "sparse", "n_ctx": tokens, "n_embd": 5 * heads, **options}
    agree(replay(write(tmp_path / "all", config, {}, inputs)), wanted)
    some = {name: wanted[name] for name in ("mask.local", "blocksparse.fixed")}
    agree(replay(write(tmp_path / "some", config, {}, inputs, some)), some)


def test_only_what_is_asked_for_needs_its_options(tmp_path: Path) -> None:
    inputs = {name: drawn(1, 6, 4) for name in "qkv"}
    config = {"model_type": "sparse", "heads": 2}
    assert replay(write(tmp_path / "a", config, {}, inputs)).keys() == {"mask.all", "dense.all", "blocksparse.all"}
    with pytest.raises(WeightsError, match="local_attn_ctx is None; needed is a whole number above 0"):
        replay(write(tmp_path / "b", config, {}, inputs, {"dense.local": drawn(1, 6, 4)}))


# --- what can be wrong with a folder --------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A good folder, to be broken."""
    config = {"model_type": "bahdanau", "query_size": 3, "key_size": 2, "num_hiddens": 4}
    weights = {"W_q.weight": drawn(4, 3), "W_k.weight": drawn(4, 2), "w_v.weight": drawn(1, 4)}
    inputs = {
        "queries": drawn(2, 2, 3),
        "keys": drawn(2, 5, 2),
        "values": drawn(2, 5, 2),
        "valid_lens": torch.tensor([1, 5]),
    }
    return write(tmp_path / "good", config, weights, inputs, {"output": drawn(2, 2, 2)})


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "inputs.safetensors"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(WeightsError, match=name):
        replay(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "inputs.safetensors", "outputs.safetensors"])
def test_a_broken_file_is_named(folder: Path, name: str) -> None:
    path = folder / name
    whole = path.read_bytes()
    for keep in (0, 4, 8, 60, len(whole) - 1):
        path.write_bytes(whole[:keep])
        with pytest.raises(WeightsError, match=rf"{name} is not a whole safetensors file \("):
            replay(folder)
    path.write_bytes((2**62).to_bytes(8, "little") + whole[8:])  # a header that claims more than there is
    with pytest.raises(WeightsError, match=f"{name} is not a whole safetensors file"):
        replay(folder)


def test_a_pickle_is_refused(folder: Path) -> None:
    torch.save({"W_q.weight": drawn(4, 3)}, folder / "model.safetensors")
    with pytest.raises(WeightsError, match="not a whole safetensors file"):
        replay(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"config.json is not valid json"),
        ("[1]", "holds a list"),
        ("{}", "must name its model_type as a text, it has 'nothing'"),
        ('{"model_type": 3}', "must name its model_type as a text, it has 3"),
        ("\udcff", "not valid json"),
        ("[" * 100_000, "not valid json: maximum recursion depth"),
        ('{"model_type": "bahdanu"}', r"'bahdanu' model.*; did you mean bahdanau\? it replays .*bahdanau, "),
        ('{"model_type": "zzz"}', "'zzz' model, which heed cannot replay; it replays "),
        ('{"model_type": "bahdanau", "num_layers": 2}', "vocab_size is missing"),
        ('{"model_type": "bahdanau", "query_size": 3, "key_size": 2}', "num_hiddens is None; needed is a whole number"),
        ('{"model_type": "bahdanau", "query_size": true, "key_size": 2, "num_hiddens": 4}', "query_size is True"),
        (
            '{"model_type": "bahdanau", "query_size": 1000000000000, "key_size": 2, "num_hiddens": 4}',
            r"W_q.weight has the shape \[4, 3\], needed is \[4, 1000000000000\]",
        ),
        ('{"model_type": "nadaraya_watson"}', "inputs.safetensors has no x_train"),
        ('{"model_type": "sparse", "heads": -1}', "heads is -1"),
    ],
)
def test_a_wrong_config_is_explained(folder: Path, text: str, message: str) -> None:
    (folder / "config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(WeightsError, match=message):
        replay(folder)


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"nowhere is not a folder; give one with config.json and model.safetensors"):
        replay(str(tmp_path / "nowhere"))


def test_all_problems_with_the_weights_at_once(folder: Path) -> None:
    save_file(
        {"W_q.weight": drawn(4, 2), "W_kk.weight": drawn(4, 2), "w_v.weight": drawn(1, 4)}, folder / "model.safetensors"
    )
    with pytest.raises(WeightsError) as caught:
        replay(folder)
    for part in (
        "W_k.weight [4, 2] is missing",
        "W_kk.weight [4, 2] is unknown; did you mean W_k.weight?",
        "W_q.weight has the shape [4, 2], needed is [4, 3]",
    ):
        assert part in str(caught.value)


def test_outputs_that_heed_does_not_make_are_all_named(folder: Path) -> None:
    save_file({name: drawn(1) for name in ("output", "logits", "state")}, folder / "outputs.safetensors")
    with pytest.raises(
        WeightsError, match="holds logits, state, which heed does not make for bahdanau; it makes attention_w"
    ):
        replay(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"keys": drawn(5, 2)}, "needed is .rows, tokens, size. three times"),
        ({"keys": drawn(3, 5, 2)}, "with the same rows"),
        ({"values": drawn(2, 4, 2)}, "as many keys as values"),
        ({"valid_lens": torch.tensor([1, 2, 3])}, "valid_lens has shape .3,. for 2 rows"),
    ],
)
def test_inputs_that_do_not_fit(folder: Path, changes: Tensors, message: str) -> None:
    save_file(load_file(folder / "inputs.safetensors") | changes, folder / "inputs.safetensors")
    with pytest.raises(WeightsError, match=message):
        replay(folder)


def test_wrong_options_of_the_others(tmp_path: Path) -> None:
    points = {"x_train": drawn(3), "y_train": drawn(3), "x_val": drawn(2)}
    with pytest.raises(WeightsError, match=r"lists the kernel 'gausian'; did you mean gaussian\?"):
        replay(write(tmp_path / "a", {"model_type": "nadaraya_watson", "kernels": ["gausian"]}, {}, points))
    with pytest.raises(WeightsError, match="kernels is 'gaussian'; needed is a list of names"):
        replay(write(tmp_path / "b", {"model_type": "nadaraya_watson", "kernels": "gaussian"}, {}, points))
    with pytest.raises(WeightsError, match="gaussian_width is 0; needed is a number above 0"):
        replay(write(tmp_path / "c", {"model_type": "nadaraya_watson", "gaussian_width": 0}, {}, points))
    with pytest.raises(WeightsError, match="3 x_train have 2 y_train"):
        replay(write(tmp_path / "d", {"model_type": "nadaraya_watson"}, {}, points | {"y_train": drawn(2)}))
    tokens = {name: drawn(1, 6, 4) for name in "qkv"}
    with pytest.raises(WeightsError, match=r"q has shape .1, 6, 4.; needed is .* divides into 3 heads"):
        replay(write(tmp_path / "e", {"model_type": "sparse", "heads": 3}, {}, tokens))
    blocks = {"model_type": "sparse", "heads": 2, "local_attn_ctx": 4, "blocksize": 2}
    with pytest.raises(ConfigError, match="context 4 is not a multiple of block 3"):
        replay(write(tmp_path / "g", blocks | {"blocksize": 3, "num_verts": 1}, {}, tokens))
    with pytest.raises(WeightsError, match="q, k and v must agree in rows and tokens"):
        replay(write(tmp_path / "h", blocks, {}, tokens | {"v": drawn(1, 5, 4)}))


def test_extra_is_an_input_kept_beside_the_outputs() -> None:
    xpos = Folder.open(GOLDEN / "xpos" / "decoder_subln")
    assert torch.equal(xpos.extra("xpos_in"), load_file(xpos.path / "outputs.safetensors")["xpos_in"])
    with pytest.raises(WeightsError, match=r"has no xpos_inn; did you mean xpos_in\?"):
        xpos.extra("xpos_inn")
    assert xpos.family == "xpos"


def test_families_are_named_after_their_model_type() -> None:
    assert {Folder.open(GOLDEN / case).family for case in CASES} <= REPLAYS.keys()
