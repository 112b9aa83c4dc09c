"""Healthy files that the attacks begin with: checkpoints of all families and formats, tokenizers, media, data, runs.

They are made once, in a process of their own (`python -m tools.attack.materials FOLDER`), since some need transformers,
and kept under build/attack as long as this file and the golden checkpoints stay as they are.
"""

from __future__ import annotations

import gzip
import io
import json
import shutil
import struct
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

from .case import ROOT, Files, read_folder
from .templates import TEMPLATE

GOLDEN = ROOT / "tests" / "golden"
PLACE = ROOT / "build" / "attack"

WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "said",
    "hello",
    "to",
    "a",
    "lazy",
    "dog",
    "naïve",
    "敏捷",
    "🎉",
    "isn't",
    "12",
]
LINES = [" ".join(WORDS[start:] + WORDS[:start]) for start in range(len(WORDS))] * 4

LLAMA = {
    "vocab_size": 60,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
}
BERT = {key: LLAMA[key] for key in LLAMA if key != "num_key_value_heads"}
T5 = {"vocab_size": 60, "d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 1, "num_heads": 4}
BART = {
    "vocab_size": 60,
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "max_position_embeddings": 32,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "head_dim": 4}
IMAGE = {**BERT, "image_size": 8, "patch_size": 4}
SOUND = {**BERT, "conv_dim": (8, 8), "conv_kernel": (4, 2), "conv_stride": (2, 2), "num_conv_pos_embeddings": 4}
MADE: dict[str, dict[str, Any]] = {  # families without a golden checkpoint, as transformers makes them
    "arcee": LLAMA,
    "clip_text_model": BERT,
    "clip_vision_model": IMAGE,
    "camembert": BERT,
    "deit": IMAGE,
    "electra": {**BERT, "embedding_size": 16},
    "encoder-decoder": {
        "encoder": {"model_type": "bert", **BERT},
        "decoder": {"model_type": "bert", **BERT, "is_decoder": True, "add_cross_attention": True},
    },
    "gemma": {**LLAMA, "head_dim": 4},
    "hubert": {**SOUND, "num_conv_pos_embedding_groups": 2},
    "mbart": BART,
    "mpnet": BERT,
    "mt5": T5,
    "pegasus": BART,
    "phi3": {**LLAMA, "pad_token_id": 0},
    "qwen2_moe": {**LLAMA, **EXPERTS, "shared_expert_intermediate_size": 8},
    "qwen3_moe": {**LLAMA, **EXPERTS},
    "umt5": T5,
    "xlm-roberta": BERT,
}


def materials(target: str = "") -> Path:
    """The folder of all of them: TARGET/MATERIAL/files. It is made when it is not there, for all targets at once."""
    return made("materials", Path(__file__).read_bytes() + TEMPLATE.encode())


def made(module: str, source: bytes, *options: str) -> Path:
    """What a module of this package makes, whose name in the folder follows from how it is made."""
    place = PLACE / "-".join([module, *options, sha256(source).hexdigest()[:12]])
    if not place.is_dir():
        fresh = place.with_name(place.name + ".new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        subprocess.run([sys.executable, "-m", f"tools.attack.{module}", str(fresh), *options], check=True, cwd=ROOT)
        fresh.rename(place)
    return place


def of_target(place: Path, target: str) -> dict[str, Files]:
    """The materials of a target by name."""
    return {folder.name: read_folder(folder) for folder in sorted((place / target).iterdir())}


# --- making them ---


def main(out: Path) -> None:
    import torch

    torch.manual_seed(0)
    for make in (_families, _safetensors, _tokenizers, _templates, _images, _sounds, _data, _recipes, _trained):
        make(out)
    _formats(out)


def put(folder: Path, files: dict[str, Any]) -> Path:
    for name, value in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        plain = value if isinstance(value, bytes | str) else json.dumps(value)
        path.write_bytes(plain.encode() if isinstance(plain, str) else plain)
    return folder


def _families(out: Path) -> None:
    from heed.weights import FAMILIES

    golden = {}
    for folder in sorted(GOLDEN.rglob("config.json")):
        config = json.loads(folder.read_text())
        if config.get("model_type") in FAMILIES.named:
            golden[config["model_type"]] = folder.parent
    for name in sorted(FAMILIES.named):
        place = out / "config" / name.replace("/", "_")
        place.mkdir(parents=True)
        if name in golden:
            for file in ("config.json", "model.safetensors"):
                shutil.copyfile(golden[name] / file, place / file)
        else:
            _transformer(name, place)


def _transformer(name: str, place: Path) -> None:
    import torch
    import transformers

    library: Any = transformers  # untyped
    library.utils.logging.disable_progress_bar()
    library.utils.logging.set_verbosity_error()
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(name, **MADE[name])
    halves = name == "encoder-decoder"  # which the library makes of two
    model = library.EncoderDecoderModel(config) if halves else library.AutoModel.from_config(config)
    model.save_pretrained(place)


def _safetensors(out: Path) -> None:
    for name in ("llama", "gpt2", "bert", "whisper", "mamba"):
        shutil.copytree(out / "config" / name, out / "safetensors" / name)
    from heed.weights import load, write

    for name in ("llama", "bert"):
        write(load(out / "config" / name), out / "index" / name, 30_000)


def _tokenizers(out: Path) -> None:
    import sentencepiece
    from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from tokenizers import Tokenizer as Inner

    def saved(inner: Inner, **settings: Any) -> dict[str, Any]:
        return {"tokenizer.json": inner.to_str(), "tokenizer_config.json": settings}

    special = ["<unk>", "<s>", "</s>", "<pad>"]
    pairs = Inner(models.BPE(unk_token="<unk>"))
    pairs.pre_tokenizer, pairs.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    pairs.train_from_iterator(LINES, trainers.BpeTrainer(vocab_size=400, special_tokens=special, show_progress=False))
    pairs.add_special_tokens([AddedToken("<|im_start|>", special=True)])
    pairs.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    put(out / "tokenizer" / "bpe", saved(pairs, bos_token="<s>", eos_token="</s>", chat_template=TEMPLATE))

    grams = Inner(models.Unigram())
    grams.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace(" ", "▁"), normalizers.Lowercase()]
    )
    grams.pre_tokenizer = pre_tokenizers.Metaspace()
    grams.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=80, special_tokens=special, unk_token="<unk>", show_progress=False)
    grams.train_from_iterator(LINES, trainer)
    put(out / "tokenizer" / "unigram", saved(grams, unk_token="<unk>"))

    words = Inner(
        models.WordPiece({**{t: i for i, t in enumerate(["[UNK]", "[CLS]", "[SEP]", *WORDS])}}, unk_token="[UNK]")
    )
    words.normalizer, words.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    words.decoder = decoders.WordPiece()
    put(out / "tokenizer" / "wordpiece", saved(words, cls_token="[CLS]", sep_token="[SEP]"))
    split = Inner(models.WordLevel({"<unk>": 0, **{t: i + 1 for i, t in enumerate(WORDS)}}, unk_token="<unk>"))
    split.pre_tokenizer = pre_tokenizers.Split(_regex(r"\s*\w+|[^\w\s]+"), "isolated")
    put(out / "tokenizer" / "split", saved(split))

    written = json.loads(pairs.to_str())["model"]
    merges = "#version: 0.2\n" + "\n".join(" ".join(pair) for pair in written["merges"]) + "\n"
    files = {"vocab.json": written["vocab"], "merges.txt": merges, "special_tokens_map.json": {"eos_token": "</s>"}}
    put(out / "tokenizer" / "pairs", {**files, "tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer"}})
    put(
        out / "tokenizer" / "words",
        {
            "vocab.txt": "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "##s"]) + "\n",
            "tokenizer_config.json": {"tokenizer_class": "BertTokenizer", "do_lower_case": True},
            "added_tokens.json": {"<new>": 21},
        },
    )
    for name, options in {"spiece": {}, "bpe": {"model_type": "bpe", "byte_fallback": True, "vocab_size": 340}}.items():
        made = io.BytesIO()
        trainer_of_pieces: Any = sentencepiece.SentencePieceTrainer
        trainer_of_pieces.train(
            sentence_iterator=iter(LINES),
            model_writer=made,
            minloglevel=3,
            num_threads=1,
            hard_vocab_limit=False,
            **{"vocab_size": 80, **options},
        )
        kind = "T5Tokenizer" if name == "spiece" else "LlamaTokenizer"
        file = "spiece.model" if name == "spiece" else "tokenizer.model"
        settings = {"tokenizer_class": kind, "extra_ids": 2}
        put(out / "tokenizer" / f"sentencepiece-{name}", {file: made.getvalue(), "tokenizer_config.json": settings})


def _regex(pattern: str) -> Any:
    from tokenizers import Regex

    return Regex(pattern)


def _templates(out: Path) -> None:
    files = dict(read_folder(out / "tokenizer" / "bpe"))
    del files["tokenizer_config.json"]
    settings = {"bos_token": "<s>", "eos_token": "</s>"}
    put(out / "template" / "bpe", {**files, "chat_template.jinja": TEMPLATE, "tokenizer_config.json": settings})


def _images(out: Path) -> None:
    import numpy as np
    from PIL import Image

    draw = np.random.default_rng(0)
    picture = Image.fromarray(draw.integers(0, 256, (24, 20, 3), dtype=np.uint8))
    how = {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"height": 16, "width": 16},
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
    }
    for kind in ("png", "jpeg", "gif", "bmp", "tiff", "webp", "ppm"):
        made = io.BytesIO()
        picture.save(made, kind)
        put(out / "image" / kind, {f"picture.{kind}": made.getvalue(), "preprocessor_config.json": how})


def _sounds(out: Path) -> None:
    import numpy as np
    import soundfile  # type: ignore[import-untyped]

    wave = np.sin(np.arange(4000) / 10).astype(np.float32)
    for kind, subtype in (
        ("wav", "PCM_16"),
        ("wav", "FLOAT"),
        ("flac", "PCM_16"),
        ("ogg", "VORBIS"),
        ("aiff", "PCM_24"),
    ):
        made = io.BytesIO()
        soundfile.write(made, wave, 8000, subtype, format=kind)
        put(out / "sound" / f"{kind}-{subtype}", {f"sound.{kind}": made.getvalue()})


def _data(out: Path) -> None:
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    rows = [(f"line {number}", f"zeile {number} 🎉") for number in range(30)]
    tsv = "source\ttarget\n" + "".join(f"{a}\t{b}\n" for a, b in rows)
    csv = "source,target\n" + "".join(f'"{a}, ""q""",{b}\n' for a, b in rows)
    jsonl = "".join(json.dumps({"source": a, "target": b}) + "\n" for a, b in rows)
    text = "\n".join(LINES)
    plain = {"tsv": tsv, "csv": csv, "jsonl": jsonl, "txt": text}
    for kind, content in plain.items():
        put(out / "data" / kind, {f"train.{kind}": content})
        packed = gzip.compress(content.encode(), mtime=0)
        put(out / "data" / f"{kind}-gz", {f"train.{kind}.gz": packed})
    table = pa.table({"source": [a for a, _ in rows], "target": [b for _, b in rows]})
    forms: dict[str, dict[str, Any]] = {
        "plain": {"use_dictionary": False},
        "dictionary": {"compression": "zstd"},
        "delta": {"use_dictionary": False, "column_encoding": dict.fromkeys(table.column_names, "DELTA_BYTE_ARRAY")},
        "length": {
            "use_dictionary": False,
            "column_encoding": dict.fromkeys(table.column_names, "DELTA_LENGTH_BYTE_ARRAY"),
        },
        "groups": {"row_group_size": 3, "compression": "gzip"},
    }
    for name, options in forms.items():
        made = io.BytesIO()
        pq.write_table(table, made, **options)
        put(out / "data" / f"parquet-{name}", {"train.parquet": made.getvalue()})


def _recipes(out: Path) -> None:
    for path in sorted((ROOT / "heed" / "recipes").glob("*.toml")):
        put(out / "recipe" / path.stem, {"recipe.toml": path.read_bytes()})


TRAINING = (
    *("data.kind=stdlib", "data.bytes=9000", "tokenizer.kind=byte"),  # no path of this machine is in the run
    *("training.batch=96", "training.steps=4", "training.evaluate=2", "training.save=2", "training.log=1"),
    "training.schedule.warmup=1",
)
SMALL = ("model.width=32", "model.depth=1", "model.mixer.0.heads=2", "model.feedforward.hidden=32", "task.context=16")


def _trained(out: Path) -> None:
    """A run, one that goes on from it with adapters, and the adapters alone; deterministic but for the times."""
    from heed.train.call import call
    from heed.weights.edits import LoRA, edit, save_adapters

    begins: tuple[tuple[str, dict[str, Any]], ...] = (("plain", {}), ("base", {"base": out / "run" / "plain"}))
    for name, more in begins:
        changes = [*TRAINING, *(SMALL if not more else ())]
        if more:
            changes.append("edits=[{kind='lora', rank=2}]")
        call("characters", out=out / "run" / name, settings=changes, quiet=True, seed=1, **more)
    import heed

    model = heed.load(out / "run" / "plain").model
    edit(model, LoRA(rank=2))
    (out / "adapter" / "lora").mkdir(parents=True)
    save_adapters(model, out / "adapter" / "lora" / "adapters.safetensors")
    for file in ("config.json", "tokenizer.json", "model.safetensors"):
        shutil.copyfile(out / "run" / "plain" / file, out / "adapter" / "lora" / file)


def _formats(out: Path) -> None:
    """The run as GGUF; llama2.c's own; pickles."""
    import numpy as np
    import torch
    from safetensors.torch import load_file

    from heed.runs.convert import convert

    checkpoint = out / "checkpoint"
    convert(out / "run" / "plain", checkpoint)
    for kind in ("f32", "f16", "q8_0"):
        (out / "gguf" / kind).mkdir(parents=True)
        convert(checkpoint, out / "gguf" / kind / "model.gguf", kind=kind)
    width, inner, heads, tokens, length = 8, 12, 2, 260, 8
    sizes = (tokens * width, width, *(width * width,) * 4, width, *(width * inner,) * 3, width, length * width // heads)
    weights = np.random.default_rng(0).standard_normal(sum(sizes) + 64, dtype=np.float32)
    header = (width, inner, 1, heads, heads, tokens, length)
    pieces = b"".join(
        struct.pack("<fi", -index, len(text)) + text
        for index, text in enumerate([b"<unk>", b"<s>", b"</s>", *(b"%c" % byte for byte in range(256)), b" the"])
    )
    version0 = struct.pack("<7i", *header) + weights[: sum(sizes)].tobytes()
    version1 = struct.pack("<Ii7iB", 0x616B3432, 1, *header, 1).ljust(256, b"\0")
    count = sum(sizes) - length * width // heads
    for name, data in (("version0", version0), ("version1", version1 + weights[:count].tobytes())):
        put(out / "llama2c" / name, {"stories.bin": data, "tok.bin": struct.pack("<i", 5) + pieces})
    tensors = load_file(out / "config" / "llama" / "model.safetensors")
    for name, options in (("zip", {}), ("legacy", {"_use_new_zipfile_serialization": False})):
        made = io.BytesIO()
        torch.save({"state_dict": tensors, "epoch": 3}, made, **options)
        config = (out / "config" / "llama" / "config.json").read_bytes()
        put(out / "pickle" / name, {"pytorch_model.bin": made.getvalue(), "config.json": config})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
