"""llama.cpp through llama-cpp-python: f32, q8_0 and q4_0; several sequences in one batch of its own interface."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ..base import Contestant, Done, Prepared, Round, nearest
from ..rounds import first_token
from ..work import Precision, Work

if TYPE_CHECKING:
    from torch import Tensor

LOAD = """
from llama_cpp import Llama
model = Llama(path + "/{kind}.gguf", n_ctx=64, n_threads={threads}, n_threads_batch={threads}, verbose=False)
model.eval(list(range(8, 24)))
"""
AT_ONCE = 512  # tokens that are computed together, llama.cpp's default
BYTES = {"f32": 4.0, "q8_0": 34 / 32, "q4_0": 18 / 32, "tq2_0": 34 / 32}  # of a weight of the embedding
PLACE = 256  # a sequence gets a multiple of so many entries of the cache
GPT2 = {
    "context_length": "n_positions",
    "embedding_length": "n_embd",
    "block_count": "n_layer",
    "attention.head_count": "n_head",
    "vocab_size": "vocab_size",
}
LLAMA = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "vocab_size": "vocab_size",
}


class LlamaCpp(Contestant):
    """With and without its fused attention, whichever is quicker."""

    name: ClassVar[str] = "llama.cpp"
    package: ClassVar[str] = "llama_cpp"
    distribution: ClassVar[str] = "llama-cpp-python"

    def precision(self, work: Work) -> str | None:
        if work.model not in {"gpt2", "llama", "bitnet"}:
            return None
        known: dict[Precision, str] = {"fp32": "f32", "int8": "q8_0", "int4": "q4_0"}
        found = nearest(work, known, ("decode", "prefill", "load"))
        return "tq2_0" if found is not None and work.model == "bitnet" else found

    def prepare(self, work: Work) -> Prepared:
        kind = self.precision(work) or "f32"
        path = written(work, kind)
        if work.subject == "load":
            return Prepared(
                {"": first_token(sys.executable, work.folder, LOAD.format(kind=kind, threads=work.threads))}
            )
        _hush()
        ways: dict[str, Round] = {
            name: Decoding(path, work, flash=flash) for name, flash in (("flash", 1), ("plain", 0))
        }
        return Prepared(ways, path.stat().st_size - work.table(BYTES[kind]))


class Decoding:
    """A context that reads prompts and writes greedily."""

    def __init__(self, path: Path, work: Work, *, flash: int) -> None:
        import llama_cpp as lib

        self._lib, self._work, self._prompts = lib, work, work.rows()
        self._model = lib.llama_model_load_from_file(str(path).encode(), lib.llama_model_default_params())
        each = -(-(work.reads + max(1, work.writes)) // PLACE) * PLACE
        given = lib.llama_context_default_params()
        given.n_ctx, given.n_seq_max = work.batch * each, work.batch
        given.n_batch, given.n_ubatch = max(AT_ONCE, work.batch * work.reads), AT_ONCE
        given.n_threads = given.n_threads_batch = work.threads
        given.flash_attn_type, given.no_perf = flash, True
        self._context = lib.llama_init_from_model(self._model, given)
        if not self._context:
            raise RuntimeError("llama.cpp gave no context")
        self._batch = lib.llama_batch_init(work.batch * work.reads, 0, 1)
        self._size = int(work.config["vocab_size"])

    def __call__(self) -> Done:
        self._lib.llama_memory_clear(self._lib.llama_get_memory(self._context), False)
        lines = [[token] for token in self._step(self._prompts, 0)]
        for number in range(1, self._work.writes):
            tokens = self._step([line[-1:] for line in lines], self._work.reads + number - 1)
            for line, token in zip(lines, tokens, strict=True):
                line.append(token)
        count = sum(map(len, lines)) if self._work.writes else self._work.units
        return Done(count, tuple(lines[0]))

    def _step(self, rows: list[list[int]], place: int) -> list[int]:
        """Tokens of every sequence from this place on; the token with the largest logit after the last of each."""
        import numpy as np

        batch, ends = self._batch, []
        at = 0
        for row, tokens in enumerate(rows):
            for column, token in enumerate(tokens):
                batch.token[at], batch.pos[at] = token, place + column
                batch.n_seq_id[at], batch.seq_id[at][0] = 1, row
                batch.logits[at] = column == len(tokens) - 1
                at += 1
            ends.append(at - 1)
        batch.n_tokens = at
        if self._lib.llama_decode(self._context, batch):
            raise RuntimeError("llama.cpp could not decode")
        logits = (self._lib.llama_get_logits_ith(self._context, end) for end in ends)
        return [int(np.ctypeslib.as_array(row, (self._size,)).argmax()) for row in logits]


def written(work: Work, kind: str) -> Path:
    """The checkpoint as GGUF, in this format."""
    import gguf
    from safetensors import safe_open

    from ...weights.formats.gguf_names import LAYOUTS

    config = work.config
    arch, path = str(config["model_type"]), Path(work.folder, f"{kind}.gguf")
    if path.exists():
        return path
    writer = gguf.GGUFWriter(path, arch)
    for name, theirs in (GPT2 if arch == "gpt2" else LLAMA).items():
        writer.add_uint32(f"{arch}.{name}", config[theirs])
    if arch == "gpt2":
        writer.add_uint32(f"{arch}.feed_forward_length", 4 * config["n_embd"])
        writer.add_layer_norm_eps(1e-5)
    else:
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
        writer.add_rope_dimension_count(config["hidden_size"] // config["num_attention_heads"])
    writer.add_string("tokenizer.ggml.model", "none")
    with safe_open(Path(work.folder, "model.safetensors"), "pt") as file:
        for theirs in file.keys():  # noqa: SIM118
            name = _named(theirs, LAYOUTS[arch].names)
            tensor = _arranged(name, file.get_tensor(theirs), config)
            stored = _kind(name, tensor, kind)
            data = gguf.quants.quantize(tensor.contiguous().numpy(), stored)
            writer.add_tensor(name, data, raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _named(theirs: str, names: dict[str, str]) -> str:
    """GGUF's name of a tensor; the number of its layer stands for #."""
    stem, _, kind = theirs.rpartition(".")
    number = next((part for part in stem.split(".") if part.isdigit()), "#")
    found = next(ours for ours, name in names.items() if name.replace("#", number) == stem)
    return f"{found.replace('#', number)}.{kind}"


def _arranged(name: str, tensor: Tensor, config: dict[str, Any]) -> Tensor:
    """GPT-2 stores [in, out]; of Llama, llama.cpp rotates neighbours where others rotate halves."""
    if config["model_type"] == "gpt2":
        return tensor.T if tensor.dim() == 2 and name.startswith("blk.") else tensor
    for part, heads in (("attn_q", config["num_attention_heads"]), ("attn_k", config["num_key_value_heads"])):
        if name.endswith(f"{part}.weight"):
            return tensor.view(heads, 2, -1, tensor.shape[1]).transpose(1, 2).flatten(0, 2)
    return tensor


def _kind(name: str, tensor: Tensor, kind: str) -> Any:
    """Matrices are stored as asked for, vectors and positions in float32; ternary are blocks only, as in heed."""
    import gguf

    kinds = gguf.GGMLQuantizationType
    if tensor.dim() < 2 or name.startswith("position_embd"):
        return kinds.F32
    if kind == "tq2_0" and not name.startswith("blk."):
        return kinds.Q8_0
    return kinds[kind.upper()]


def _hush() -> None:
    """llama.cpp says much about what it loads."""
    import llama_cpp as lib

    def nothing(level: int, text: bytes, data: object) -> None:
        """Says nothing."""

    _KEPT.append(lib.llama_log_callback(nothing))
    lib.llama_log_set(_KEPT[-1], ctypes.c_void_p(0))


_KEPT: list[Any] = []  # callbacks must live as long as C may call them
