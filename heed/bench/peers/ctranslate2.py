"""CTranslate2: float32, or int8 weights and activations; converted from the checkpoint by its own converter."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, ClassVar

from ..base import Contestant, Done, Prepared, Round, nearest
from ..rounds import batches, first_token
from ..work import BEAMS, Precision, Work
from .transformers import sizes

LOAD = """
import ctranslate2
model = ctranslate2.Generator(path + "/ctranslate2-{kind}", intra_threads={threads}, compute_type="{kind}")
model.generate_batch([[str(token) for token in range(8, 24)]], max_length=1, include_prompt_in_result=False)
"""


class CTranslate2(Contestant):
    """One batch at a time, with all threads within it."""

    name: ClassVar[str] = "ctranslate2"
    package: ClassVar[str] = "ctranslate2"
    distribution: ClassVar[str] = "ctranslate2"

    def precision(self, work: Work) -> str | None:
        if work.model not in {"gpt2", "llama", "bert", "transformer"}:
            return None
        known: dict[Precision, str] = {"fp32": "float32", "int8": "int8"}
        return nearest(work, known, ("decode", "prefill", "encode", "translate", "load"))

    def prepare(self, work: Work) -> Prepared:
        kind = self.precision(work) or "float32"
        folder = converted(work, kind)
        if work.subject == "load":
            return Prepared(
                {"": first_token(sys.executable, work.folder, LOAD.format(kind=kind, threads=work.threads))}
            )
        import ctranslate2

        given = {"device": "cpu", "compute_type": kind, "inter_threads": 1, "intra_threads": work.threads}
        size = (folder / "model.bin").stat().st_size - work.table(1 if kind == "int8" else 4)
        match work.subject:
            case "encode":
                return Prepared(_encode(work, ctranslate2.Encoder(str(folder), **given)), size)
            case "translate":
                return Prepared({"": _translate(work, ctranslate2.Translator(str(folder), **given))}, size)
            case _:
                return Prepared({"": _write(work, ctranslate2.Generator(str(folder), **given))}, size)


class Numbers:
    """A tokenizer of numbers, as the converter asks it."""

    bos_token, eos_token, unk_token, unk_token_id = "2", "0", "1", 1

    def __init__(self, size: int) -> None:
        self._size = size

    def get_vocab(self) -> dict[str, int]:
        return {str(number): number for number in range(self._size)}


def converted(work: Work, kind: str) -> Path:
    """The checkpoint in CTranslate2's format, made once for each precision."""
    from ctranslate2.converters import TransformersConverter

    folder = Path(work.folder, f"ctranslate2-{kind}")
    # Of Marian, the converter drops the last token, which is the padding: 32,000 are left.
    size = work.config["vocab_size"] - (work.model == "transformer")

    class Converter(TransformersConverter):  # type: ignore[misc]
        def load_tokenizer(self, *_: object, **__: object) -> Any:
            return Numbers(size)

        def load_model(self, *given: Any, **more: Any) -> Any:
            model = super().load_model(*given, **more)
            model.config.position_embedding_type = "absolute"  # asked for, of BERT; transformers 5 has no other
            return model

    if not folder.exists():
        Converter(work.folder).convert(str(folder), quantization=kind)
    return folder


def _words(work: Work) -> list[list[str]]:
    return [[str(token) for token in row] for row in work.rows()]


def _write(work: Work, model: Any) -> Round:
    """Decoding, and prefill with one token written after it."""
    prompts, limit = _words(work), work.writes or 1

    def written() -> Done:
        made = model.generate_batch(
            prompts,
            max_batch_size=0,
            max_length=limit,
            min_length=limit,
            beam_size=1,
            include_prompt_in_result=False,
            end_token=[],
        )
        lines = [one.sequences_ids[0] for one in made]
        return Done(sum(map(len, lines)) if work.writes else work.units, tuple(lines[0]))

    return written


def _encode(work: Work, model: Any) -> dict[str, Round]:
    import numpy as np

    def way(size: int) -> Round:
        some = [[row[: sum(real)] for row, real in zip(*both, strict=True)] for both in batches(work.rows(), size)]

        def encoded() -> Done:
            count = 0
            for rows in some:
                stream = np.array(model.forward_batch(rows).last_hidden_state)
                count += len(np.stack([one[: len(row)].mean(0) for one, row in zip(stream, rows, strict=True)]))
            return Done(count)

        return encoded

    return {f"batches of {size}": way(size) for size in sizes(work)}


def _translate(work: Work, model: Any) -> Round:
    sources = _words(work)

    def translated() -> Done:
        made = model.translate_batch(
            sources,
            max_batch_size=0,
            beam_size=BEAMS,
            max_decoding_length=work.writes,
            min_decoding_length=work.writes,
            end_token=[],
        )
        lines = [one.hypotheses[0] for one in made]
        return Done(sum(len(line) == work.writes for line in lines), tuple(map(int, lines[0])))

    return translated
