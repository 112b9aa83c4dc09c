"""More healthy files: corpora of words, questions, images and sounds, runs of tasks, shards, adapters, requests.

They are made apart from the others, and those of each target by themselves (`python -m tools.attack.corpora FOLDER
TARGET`), since trainings take their time.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .case import ROOT
from .materials import made, materials, put
from .templates import TEMPLATE

NAMES = {"Anna": "PER", "Bert": "PER", "Paris": "LOC", "Rome": "LOC"}
STEPS = ("training.steps=4", "training.evaluate=2", "training.save=2", "training.log=1", "training.schedule.warmup=1")
SMALL = (*STEPS, "model.width=16", "model.depth=1", "training.batch=96")
TEXTS = (*SMALL, "tokenizer.kind=bpe", "tokenizer.size=300", "data.held_out=0.2")
PICTURES = (*STEPS, "model.image=[16,16]", "model.channels=1", "model.stem.channels=[4,4,4]", "model.width=16")


def tagged(sentences: int = 24) -> str:
    """Names of people and places, some of two words, a word per line."""
    lines = []
    for number in range(sentences):
        one, other = (list(NAMES)[(number * step) % 4] for step in (1, 3))
        words = [(one, f"B-{NAMES[one]}"), ("met", "O"), (other, f"B-{NAMES[other]}"), ("Smith", f"I-{NAMES[other]}")]
        lines += [f"{word}\t{label}" for word, label in words[: 3 + number % 2]] + [""]
    return "\n".join(lines)


def asked(questions: int = 24) -> list[dict[str, Any]]:
    """Who is where? Every fourth question has no answer."""
    rows = []
    for number in range(questions):
        who, where = list(NAMES)[number % 2], list(NAMES)[2 + number // 2 % 2]
        context = f"It was cold. {who} stayed in {where} for {number} days."
        answers = [{"text": where, "answer_start": context.index(where)}] if number % 4 != 3 else []
        rows.append({"question": f"Where was {who}?", "context": context, "answers": answers})
    return rows


def lined(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def squad() -> dict[str, Any]:
    """The same as SQuAD has it."""
    paragraphs = [
        {"context": row["context"], "qas": [{"id": str(number), **{k: row[k] for k in ("question", "answers")}}]}
        for number, row in enumerate(asked())
    ]
    return {"version": "v2.0", "data": [{"title": "names", "paragraphs": paragraphs}]}


def classified() -> str:
    rows = [(f"{who} met nobody", "alone") if n % 3 else (f"{who} met all of them", "not") for n, who in _people()]
    return "text\tlabel\n" + "".join(f"{text} {number}\t{label}\n" for number, (text, label) in enumerate(rows))


def _people(count: int = 30) -> list[tuple[int, str]]:
    return [(number, list(NAMES)[number % 4]) for number in range(count)]


def pictures(side: int = 8, count: int = 8) -> dict[str, bytes]:
    """A folder of class folders: stripes across, and down."""
    import numpy as np
    from PIL import Image

    files = {}
    for kind in ("across", "down"):
        for number in range(count):
            wave = 255 * ((np.arange(side) + number) // 2 % 2)
            plane = np.broadcast_to(wave[:, None] if kind == "across" else wave, (side, side)).astype(np.uint8)
            made = io.BytesIO()
            Image.fromarray(plane).save(made, "png")
            files[f"{kind}/{number}.png"] = made.getvalue()
    return files


def arrays() -> dict[str, bytes]:
    """Images as MNIST has them, packed and not, and as numpy writes them."""
    import numpy as np

    draw = np.random.default_rng(0)
    images, labels = draw.integers(0, 256, (12, 8, 8), dtype=np.uint8), np.arange(12, dtype=np.uint8) % 2
    first = struct.pack(">HBB3I", 0, 8, 3, *images.shape) + images.tobytes()
    second = struct.pack(">HBB1I", 0, 8, 1, *labels.shape) + labels.tobytes()
    made = io.BytesIO()
    np.savez_compressed(made, x_train=images, y_train=labels)
    return {
        "train-images.idx3-ubyte": first,
        "train-labels.idx1-ubyte": second,
        "train-images.idx3-ubyte.gz": gzip.compress(first, mtime=0),
        "train-labels.idx1-ubyte.gz": gzip.compress(second, mtime=0),
        "train.npz": made.getvalue(),
    }


def sounds(count: int = 4) -> dict[str, bytes]:
    """Two tones."""
    import numpy as np
    import soundfile  # type: ignore[import-untyped]

    files = {}
    for name, tone in (("high", 900), ("low", 300)):
        for number in range(count):
            made = io.BytesIO()
            wave = np.sin(2 * np.pi * tone * np.arange(1600 + 80 * number) / 8000).astype(np.float32)
            soundfile.write(made, wave, 8000, format="wav")
            files[f"{name}/{number}.wav"] = made.getvalue()
    return files


def corpora(target: str) -> Path:
    """The folder of those of a target; some begin with the other materials."""
    return made("corpora", Path(__file__).read_bytes() + materials().name.encode(), target)


def main(out: Path, target: str) -> None:
    import torch

    torch.manual_seed(0)
    MAKERS[target](out / target)


def _corpora(out: Path) -> None:
    """Below the name of what they are read as."""
    rows = asked()
    said = [{"words": ["Anna", "met", "Rome"], "labels": ["B-PER", "O", "B-LOC"]}] * 8
    numbered = "\n".join(f"{number}\tword{number}\t_\t{'NOUN' if number % 2 else 'VERB'}" for number in range(1, 9))
    beside = [{"id": row["context"][:30], "text": row["context"]} for row in rows[:2]]
    about = [{"para": one["id"], "question": "Where?", "answers": ["Paris"]} for one in beside]
    put(out / "conll", {"words/train.conll": tagged()})
    put(out / "conll-gz", {"words/train.conll.gz": gzip.compress(tagged().encode(), mtime=0)})
    put(out / "conllu", {"words/train.conllu": f"# text = words\n{numbered}\n\n{numbered}\n"})
    put(out / "lists", {"words/train.jsonl": lined(said)})
    put(out / "squad", {"questions/train.json": squad()})
    put(out / "questions", {"questions/train.jsonl": lined(rows)})
    put(out / "paragraphs", {"questions/train.jsonl": lined([*beside, *about])})
    shown, heard = pictures(), sounds()
    put(out / "pictures", {f"image/train/{name}": data for name, data in shown.items()})
    table = "image\tlabel\n" + "".join(f"train/{name}\t{name.partition('/')[0]}\n" for name in shown)
    put(out / "table", {f"image/train/{name}": data for name, data in shown.items()} | {"image/train.tsv": table})
    for name, data in arrays().items():
        more = {f"image/{other}": held for other, held in arrays().items() if "label" in other}
        if "label" not in name:
            put(out / name.replace(".", "-"), more | {f"image/{name}": data})
    put(out / "sounds", {f"sound/train/{name}": data for name, data in heard.items()})


def _runs(out: Path) -> None:
    """Runs beside their data, evaluated, so that their floors are known; the paths in them are those of a case."""
    import heed
    from heed.runs import digests
    from heed.train.call import call

    made: dict[str, tuple[str, dict[str, Any], str, tuple[str, ...]]] = {
        "classify": ("classify", {"data.tsv": classified()}, "data.tsv", TEXTS),
        "tag": ("tag", {"data.conll": tagged()}, "data.conll", TEXTS),
        "span": ("span", {"data.jsonl": lined(asked())}, "data.jsonl", (*TEXTS, "task.longest=40", "task.stride=8")),
        "images": ("images", {f"data/{name}": one for name, one in pictures().items()}, "data", PICTURES),
    }
    before = Path.cwd()
    for name, (recipe, files, data, settings) in made.items():
        room = out / f"{name}.room"
        put(room / "in", files)
        (room / "out").mkdir()
        os.chdir(room / "out")
        try:
            call(recipe, out=room / "run", data=f"../in/{data}", settings=settings, quiet=True, seed=1)
            heed.eval(room / "run", split="valid", quiet=True)
        finally:
            os.chdir(before)
        config = room / "run" / "config.json"  # whose paths are whole ones, of this folder
        config.write_text(config.read_text().replace(f"{room / 'out'}/../in", "../in"))
        digests.record(room / "run", [config.name])
        for held in (room / "in").iterdir():
            shutil.move(held, room / "run")
        shutil.move(room / "run", out / name)
        shutil.rmtree(room)


SPREAD = """
import sys
from pathlib import Path
from heed.train.call import call
from tools.attack.materials import SMALL, TRAINING
settings = [*TRAINING, *SMALL, "training.parallel.kind=shard"]
call("characters", out=Path(sys.argv[1]), settings=settings, quiet=True, seed=1)
"""


def _spread(out: Path) -> None:
    """A run whose checkpoints lie in the shards of two processes."""
    out.mkdir()
    script = out / "script.py"
    script.write_text(SPREAD)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join((str(ROOT), *sys.path))}
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    command = [sys.executable, *launch, str(script), str(out / "two")]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    script.unlink()


def _peft(out: Path) -> None:
    """Adapters as peft writes them, beside their base."""
    import peft
    import torch
    import transformers

    library: Any = transformers  # untyped
    library.utils.logging.disable_progress_bar()
    library.utils.logging.set_verbosity_error()
    for name, kind, targets in (
        ("llama", library.AutoModelForCausalLM, ["q_proj", "v_proj"]),
        ("gpt2", library.AutoModelForCausalLM, ["c_attn"]),
        ("bert", library.AutoModelForSequenceClassification, ["query", "value"]),
    ):
        place = out / name
        base = kind.from_pretrained(materials() / "config" / name)
        base.save_pretrained(place / "base")
        task = "SEQ_CLS" if name == "bert" else "CAUSAL_LM"
        told = peft.LoraConfig(r=2, lora_alpha=4, target_modules=targets, task_type=task)
        model: Any = peft.get_peft_model(base, told)
        draw = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for key, weight in model.named_parameters():
                if "lora_" in key:
                    weight.copy_(torch.randn(weight.shape, generator=draw) * 0.1)
        model.peft_config["default"].base_model_name_or_path = "base"  # beside it, wherever a case lies
        model.save_pretrained(place)
        (place / "README.md").unlink(missing_ok=True)


def _requests(out: Path) -> None:
    """What a server is asked, each with the models that it has."""
    models = {"chain": materials() / "checkpoint", "words": corpora("tasks") / "tasks" / "classify"}
    model = {"model": "chain"}
    few = {**model, "max_tokens": 2, "temperature": 0.5, "seed": 1}
    said = [{"role": "system", "content": "Be short."}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "properties": {}}}}
    asks: dict[str, tuple[str, dict[str, Any]]] = {
        "completion": ("/v1/completions", {**few, "prompt": "the", "logprobs": 2, "echo": True, "stop": ["\n"]}),
        "ids": ("/v1/completions", {**few, "prompt": [[1, 2], [3]], "n": 2, "logit_bias": {"5": 1.5}, "user": "a"}),
        "stream": ("/v1/completions", {**few, "prompt": ["a", "b"], "stream": True, "top_p": 0.9, "top_k": 3}),
        "chat": ("/v1/chat/completions", {**few, "messages": said, "logprobs": True, "top_logprobs": 1}),
        "format": ("/v1/completions", {**few, "prompt": "x", "response_format": wanted}),
        "regex": ("/v1/completions", {**few, "prompt": "x", "structured_outputs": {"regex": "[a-z]{1,3}"}}),
        "embedding": ("/v1/embeddings", {"model": "words", "input": ["Anna met Rome", "no"]}),
        "tokenize": ("/tokenize", {**model, "prompt": "the fox"}),
        "detokenize": ("/detokenize", {**model, "tokens": [1, 2, 3]}),
    }
    for name, (path, body) in asks.items():
        place = out / name
        for called, folder in models.items():
            shutil.copytree(folder, place / called, ignore=shutil.ignore_patterns("state", "data*"))
        told = place / "chain" / "tokenizer_config.json"
        data = json.loads(told.read_text()) if told.is_file() else {}
        told.write_text(json.dumps({**data, "chat_template": TEMPLATE}))
        head = {"method": "POST", "path": path, "headers": {"host": "127.0.0.1", "content-type": "application/json"}}
        put(place, {"head.json": head, "body.json": body})


MAKERS: dict[str, Callable[[Path], None]] = {
    "corpus": _corpora,
    "tasks": _runs,
    "shards": _spread,
    "peft": _peft,
    "request": _requests,
}

if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
