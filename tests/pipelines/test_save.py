"""Pipelines written as folders in the Hugging Face layout, loaded by transformers and by heed again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file

import heed
from heed import weights
from heed.core.errors import InputError, WeightsError
from heed.pipelines import TextGeneration
from heed.text import Char, Chat, Declared, Tokenizer
from heed.weights.edits.quantised import is_quantised
from tests.weights.support import GOLDEN

transformers.utils.logging.disable_progress_bar()
HF: Any = transformers

TEXT = "abcdefghijklmnopqrstuvwxyz \n"
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint in bfloat16 with all that may lie beside."""
    folder = tmp_path_factory.mktemp("theirs") / "llama"
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab_size": 32, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    config = HF.LlamaConfig(**sizes, num_attention_heads=2, bos_token_id=1, eos_token_id=2)
    HF.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    tokenizer = Char().train([TEXT])
    Tokenizer(tokenizer.__reduce__()[1][0], Declared(chat=Chat(TEMPLATE))).save_all(folder)
    told = {"eos_token_id": [2, 3], "bos_token_id": 1, "do_sample": True, "temperature": 0.6}
    (folder / "generation_config.json").write_text(json.dumps(told))
    (folder / "preprocessor_config.json").write_text("{}")
    (folder / "code.py").write_text("1/0")
    return folder


@torch.no_grad()
def test_a_checkpoint_comes_back_as_it_was(llama: Path, tmp_path: Path) -> None:
    pipeline = heed.load(str(llama))
    pipeline.save(str(tmp_path / "out"))
    out = tmp_path / "out"
    names = {path.name for path in llama.iterdir()} - {"code.py"}
    assert {path.name for path in out.iterdir()} == names
    for name in names - {"model.safetensors"}:
        assert json.loads((out / name).read_text()) == json.loads((llama / name).read_text()), name
    before, after = load_file(llama / "model.safetensors"), load_file(out / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(
        torch.equal(after[name], tensor) and after[name].dtype == tensor.dtype for name, tensor in before.items()
    )
    one, two = (HF.LlamaForCausalLM.from_pretrained(folder) for folder in (llama, out))
    tokens = torch.arange(4, 20)[None]
    assert torch.equal(one(tokens).logits, two(tokens).logits)
    assert heed.load(out).tokenizer.chat == pipeline.tokenizer.chat


def test_heed_save_is_the_same(llama: Path, tmp_path: Path) -> None:
    heed.save(heed.load(llama), tmp_path / "out")
    assert (tmp_path / "out" / "model.safetensors").is_file()


def test_where_it_is_written(llama: Path, tmp_path: Path) -> None:
    pipeline = heed.load(llama)
    (tmp_path / "empty").mkdir()
    pipeline.save(tmp_path / "empty")
    with pytest.raises(WeightsError, match="is already there and not empty; name another folder, or remove that one"):
        pipeline.save(tmp_path / "empty")
    (tmp_path / "file").write_text("")
    with pytest.raises(WeightsError, match="is a file; name a folder"):
        pipeline.save(tmp_path / "file")
    with pytest.raises(InputError, match="a folder is named by a text or a Path, not by int"):
        pipeline.save(3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"not TextGeneration; a pipeline is written by m.save\(folder\)"):
        weights.write(pipeline, tmp_path / "no")  # type: ignore[arg-type]
    pipeline.save(tmp_path / "deep" / "er")
    assert (tmp_path / "deep" / "er" / "config.json").is_file()
    assert not list(tmp_path.rglob("*.new"))


def test_other_precisions(llama: Path, tmp_path: Path) -> None:
    half = heed.load(llama, dtype=torch.float16)
    assert {parameter.dtype for parameter in half.model.parameters()} == {torch.float16}
    half.save(tmp_path / "half")
    assert json.loads((tmp_path / "half" / "config.json").read_text())["dtype"] == "float16"
    assert {tensor.dtype for tensor in load_file(tmp_path / "half" / "model.safetensors").values()} == {torch.float16}
    stored = heed.load(llama, dtype="auto")
    assert {parameter.dtype for parameter in stored.model.parameters()} == {torch.bfloat16}
    assert isinstance(stored.generate("abc"), str)
    assert {parameter.dtype for parameter in heed.load(llama).model.parameters()} == {torch.float32}
    with pytest.raises(InputError, match="weights cannot be int8"):
        heed.load(llama, dtype="int8")


def test_what_other_libraries_call_it(llama: Path) -> None:
    for name, told in {
        "torch_dtype": "write dtype=",
        "device_map": "write device=",
        "dtpye": "did you mean dtype",
    }.items():
        with pytest.raises(InputError, match=told):
            heed.load(llama, **{name: "auto"})  # type: ignore[arg-type]
    with pytest.raises(InputError, match="runs no code of a checkpoint"):
        heed.load(llama, trust_remote_code=True)  # type: ignore[arg-type]
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="there is no device 'cuda' here"):
            heed.load(llama, device="cuda")


@pytest.mark.parametrize("bits", ["int8", 8, 4])
def test_quantised_weights_stay_so(bits: Any, llama: Path, tmp_path: Path) -> None:
    small = heed.load(llama, quantise=bits)
    small.save(tmp_path / "out")
    again = heed.load(tmp_path / "out")
    assert any(map(is_quantised, again.model.modules()))
    assert again.generate("abc") == small.generate("abc")
    again.save(tmp_path / "again")
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (tmp_path / "out/model.safetensors").read_bytes()


def test_images_go_with_how_they_are_prepared(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1}
    config = HF.ViTConfig(**sizes, num_attention_heads=2, image_size=8, patch_size=4, num_labels=3)
    HF.ViTForImageClassification(config).save_pretrained(tmp_path / "vit")
    prepared = {"do_resize": True, "size": {"height": 8, "width": 8}, "image_processor_type": "ViTImageProcessor"}
    (tmp_path / "vit" / "preprocessor_config.json").write_text(json.dumps(prepared))
    heed.load(tmp_path / "vit").save(tmp_path / "out")
    assert json.loads((tmp_path / "out" / "preprocessor_config.json").read_text()) == prepared
    pixels = torch.randn(1, 3, 8, 8)
    one, two = (HF.ViTForImageClassification.from_pretrained(tmp_path / name) for name in ("vit", "out"))
    with torch.no_grad():
        assert torch.equal(one(pixels).logits, two(pixels).logits)


def test_what_has_no_way_back(llama: Path, tmp_path: Path) -> None:
    loaded = heed.load(llama)
    assert isinstance(loaded, TextGeneration)
    for pipeline in (TextGeneration(loaded.model, loaded.tokenizer), heed.load(GOLDEN / "retnet" / "lm_three_forms")):
        with pytest.raises(InputError, match="from its authors' own layout, or the pipeline was made by hand"):
            pipeline.save(tmp_path / "out")
