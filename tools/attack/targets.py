"""What is attacked: every loader of heed, with the files it is fed and what is done with what it makes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

from . import http, tasks
from .case import Case, Files
from .corpora import corpora
from .formats import mutated
from .materials import materials, of_target
from .mutate import Mutator, mutated_bytes, mutated_folder
from .templates import mutated_template

LARGEST = 1 << 23  # bytes of a mutated file: time is for cases, not for copies
Use: TypeAlias = Callable[[Path, Path, Random], None]  # of a case's folder, of a folder to write to


@dataclass(frozen=True)
class Target:
    """A loader. `use` raises what it raises; that is judged elsewhere."""

    name: str
    use: Use
    focus: tuple[str, ...] = ("*",)  # files that are mutated
    share: float = 1.0  # of the time
    batch: int = 16  # cases that one process tries, one after another
    special: Mutator | None = None  # instead of the mutations of the file's format
    finish: Callable[[Random, Files], None] | None = None  # after the mutations
    pipes: bool = True  # one may stand in the place of a file; not of one that the user names: it is waited for
    anything: bool = False  # any exception is a refusal: another process turns it into one
    place: Callable[[str], Path] = materials  # where its healthy files are
    given: dict[str, Files] | None = field(default=None, repr=False)  # these, in the place of those made

    @cached_property
    def materials(self) -> dict[str, Files]:
        return of_target(self.place(self.name), self.name) if self.given is None else self.given

    def case(self, seed: int) -> Case:
        """The case of a seed: a material, and one mutation or a few."""
        draw = Random(f"{self.name}:{seed}")
        material = draw.choice(sorted(self.materials))
        count = draw.choice((1, 1, 1, 1, 2, 2, 3, 5))
        return self.built(material, tuple(draw.getrandbits(48) for _ in range(count)), seed)

    def built(self, material: str, steps: tuple[int, ...], seed: int | None = None) -> Case:
        """The case of these mutations."""
        before = self.materials[material]
        files = dict(before)
        for step in steps:
            self._mutate(Random(step), files)
        if self.finish is not None:
            self.finish(Random(f"{seed}"), files)
        case = Case.of(self.name, material, before, files)
        return Case(case.target, material, case.changed, case.removed, seed, "", steps)

    def _mutate(self, draw: Random, files: Files) -> None:
        if not files or draw.random() < 0.07:
            if files:
                mutated_folder(draw, files, pipes=self.pipes)
            return
        names = [name for name in sorted(files) if isinstance(files[name], bytes)]
        chosen = [name for name in names if any(fnmatch(name, pattern) for pattern in self.focus)] or names
        if not chosen:
            return
        name = draw.choice(chosen)
        data = files[name]
        assert isinstance(data, bytes)
        try:
            changed = self.special(draw, data) if self.special is not None else mutated(draw, name, data)
        except RecursionError:  # a mutation before this one made it too deep to be parsed here
            changed = mutated_bytes(draw, data)
        files[name] = changed[:LARGEST]


# --- models ---


def _checkpoint(folder: Path, out: Path, draw: Random) -> None:
    import heed

    if draw.random() < 0.2:
        from heed.runs.info import info

        info(folder)
    _asked(heed.load(folder), draw)


def _asked(pipeline: Any, draw: Random) -> None:
    """A little of what a model is for."""
    import torch

    from heed.core.contract import Where
    from heed.core.interfaces import LanguageModel
    from heed.models import Seq2seq
    from heed.pipelines import TextGeneration

    repr(pipeline)
    model: Any = pipeline.model
    if isinstance(pipeline, TextGeneration):
        if draw.random() < 0.5:
            pipeline.generate("the quick", max_new_tokens=3)
        else:
            pipeline.generate("the", max_new_tokens=2, temperature=1.0, top_p=0.9, seed=1)
    elif isinstance(model, LanguageModel) and not isinstance(model, Seq2seq):
        with torch.no_grad():
            pipeline.model(torch.zeros(1, 3, dtype=torch.long), Where.run(1, 3))


def _gguf(folder: Path, out: Path, draw: Random) -> None:
    import heed

    path = next(iter(sorted(folder.glob("*.gguf"))), folder)
    how = draw.random()
    if how < 0.2:
        from heed.runs.info import info

        info(path)
    elif how < 0.35:
        _asked(heed.load(path, quantise="keep"), draw)
    else:
        _asked(heed.load(path), draw)


def _llama2c(folder: Path, out: Path, draw: Random) -> None:
    from heed.runs.convert import convert

    tokenizer = folder / "tok.bin"
    convert(folder / "stories.bin", out / "made", tokenizer=tokenizer if draw.random() < 0.8 else None)


def _pickle(folder: Path, out: Path, draw: Random) -> None:
    """As the other process does it, or (now and then, since it takes seconds) with that process."""
    if draw.random() < 0.01:
        from heed.runs.convert import convert

        convert(folder, out / "made")
        return
    from heed.weights.formats import pickles

    made = out / "made"
    made.mkdir()
    pickles.convert(pickles._files(folder), made)


def _adapter(folder: Path, out: Path, draw: Random) -> None:
    import heed
    from heed.weights.edits import load_adapters, merge

    pipeline = heed.load(folder)
    load_adapters(pipeline.model, folder / "adapters.safetensors")
    if draw.random() < 0.5:
        merge(pipeline.model)
    _asked(pipeline, draw)


# --- text ---

TEXTS = ("the quick brown fox isn't here 12", "", "🎉敏捷\u0301\ufeff\0", "a" * 300, "  \n\t <s></s><|im_start|>")


def _tokenizer(folder: Path, out: Path, draw: Random) -> None:
    from heed.text import pretrained

    tokenizer = pretrained.read(folder)
    repr(tokenizer)
    for text in TEXTS:
        ids = tokenizer.encode(text)
        tokenizer.decode(ids)
        tokenizer.tokens(ids)
        stream = tokenizer.stream()
        for index in ids[:50]:
            stream.push(index)
        stream.rest()
    tokenizer.encode_all(list(TEXTS))
    tokenizer.framed(TEXTS[0], TEXTS[0])
    if draw.random() < 0.3:
        tokenizer.save_all(out)


def _template(folder: Path, out: Path, draw: Random) -> None:
    from heed.text import pretrained

    told = pretrained.read(folder).told
    if told.chat is not None:
        told.chat.render([{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}])


# --- media ---


def _image(folder: Path, out: Path, draw: Random) -> None:
    from heed.media.images import Preparation

    for path in sorted(folder.glob("picture.*")):
        Preparation.of_folder(folder).batch([path])


def _sound(folder: Path, out: Path, draw: Random) -> None:
    from heed.media.sounds import LogMel, read

    for path in sorted(folder.glob("sound.*")):
        samples = read(path)
        LogMel()(samples[:20_000])


# --- data, recipes, runs ---


def _data(folder: Path, out: Path, draw: Random) -> None:
    from heed.data import Files as DataFiles

    path = next(iter(sorted(folder.glob("train.*"))), folder)
    plain = ".txt" in path.name
    options: dict[str, Any] = (
        {"train": str(path), "lines": True} if plain and draw.random() < 0.5 else {"train": str(path)}
    )
    options["bad_rows"] = draw.choice(("stop", "skip"))
    columns = ("text",) if plain else draw.choice((("source", "target"), ("source",)))
    source = DataFiles(**options)
    for name in ("train", "valid"):
        split = source.split(name, columns)
        split.report()
        for index in range(min(len(split), 50)):
            split[index]


def _recipe(folder: Path, out: Path, draw: Random) -> None:
    from heed.runs.recipe import Recipe, find
    from heed.show.settings import sections

    recipe = Recipe.read(find(str(folder / "recipe.toml")))
    recipe.dump()
    list(sections(recipe))


def _run(folder: Path, out: Path, draw: Random) -> None:
    import heed
    from heed.runs import Run

    how = draw.random()
    if how < 0.35:
        _asked(heed.load(folder), draw)
    elif how < 0.6:
        from heed.runs.info import info

        info(folder)
    elif how < 0.75:
        from heed.train import checkpoint

        run = Run.open(folder)
        run.damage()
        for place in checkpoint.found(run):
            checkpoint.damage(place)
    elif how < 0.97:
        from heed.show.progress import Silent
        from heed.train import resume

        resume(folder, ("training.steps=5", "training.device=cpu"), Silent())
    else:
        from heed.runs.convert import convert

        convert(folder, out / "made")


def _signed(draw: Random, files: Files) -> None:
    """Digests that fit: a stranger makes those, too. Else every change would be taken for damage."""
    if draw.random() < 0.2:
        return
    for name in [name for name in files if name.endswith("SHA256SUMS")]:
        data, folder = files[name], name.removesuffix("SHA256SUMS")
        if not isinstance(data, bytes):
            continue
        lines = []
        for line in data.decode("utf-8", "replace").splitlines():
            told, _, listed = line.partition("  ")
            content = files.get(folder + listed)
            lines.append(f"{sha256(content).hexdigest() if isinstance(content, bytes) else told}  {listed}\n")
        files[name] = "".join(lines).encode()


TASKS = ("*.json", "*.jsonl", "*.tsv", "*.conll", "*.safetensors", "SHA256SUMS")
SHARDS = ("*/layout.json", "*/progress.json", "*/shard-*")
TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("safetensors", _checkpoint, ("*.safetensors",)),
        Target("index", _checkpoint, ("*.index.json", "*.safetensors", "*.index.json")),
        Target("config", _checkpoint, ("*.json",), share=2.0),
        Target("gguf", _gguf, share=1.5),
        Target("llama2c", _llama2c, pipes=False),
        Target("pickle", _pickle, ("*.bin",), anything=True),
        Target("tokenizer", _tokenizer, share=1.5),
        Target("template", _template, ("*.jinja",), special=mutated_template, batch=4),
        Target("image", _image),
        Target("sound", _sound),
        Target("data", _data, share=1.5, pipes=False),
        Target("recipe", _recipe),
        Target("run", _run, ("*.json", "*.jsonl", "*.safetensors", "SHA256SUMS"), share=1.5, finish=_signed, batch=8),
        Target("adapter", _adapter, ("adapters.safetensors",)),
        Target("peft", tasks.peft, ("adapter_config.json", "adapter_model.safetensors"), place=corpora),
        Target("tasks", tasks.run_of_a_task, TASKS, finish=_signed, batch=8, pipes=False, place=corpora),
        Target("shards", tasks.shards, SHARDS, finish=_signed, batch=8, place=corpora),
        Target("corpus", tasks.corpus, pipes=False, place=corpora),
        Target("request", http.request, ("body.json", "body.json", "head.json"), pipes=False, place=corpora),
    )
}
