"""onnxruntime: BERT as a graph, its attention and norms fused by its own optimizer; float32, or dynamic int8."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ..base import Contestant, Done, Prepared, Round, nearest
from ..rounds import batches
from ..work import Work
from .transformers import loaded, sizes

if TYPE_CHECKING:
    from torch import Tensor


class OnnxRuntime(Contestant):
    """Exported from transformers' model, which must be there, too; the fused and the plain graph are both tried."""

    name: ClassVar[str] = "onnxruntime"
    package: ClassVar[str] = "onnxruntime"
    distribution: ClassVar[str] = "onnxruntime"

    def precision(self, work: Work) -> str | None:
        if work.model != "bert":
            return None
        return nearest(work, {"fp32": "fp32", "int8": "int8"}, ("encode",))

    def prepare(self, work: Work) -> Prepared:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = work.threads, 1
        found: dict[str, Round] = {}
        for graph in graphs(work, int8=self.precision(work) == "int8"):
            session = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
            for size in sizes(work):
                found[f"{graph.stem}, batches of {size}"] = _way(work, session, size)
        return Prepared(found)


def _way(work: Work, session: Any, size: int) -> Round:
    import numpy as np

    some = [(np.array(ids), np.array(mask)) for ids, mask in batches(work.rows(), size)]

    def encoded() -> Done:
        count = 0
        for ids, mask in some:
            (stream,) = session.run(None, {"ids": ids, "mask": mask})
            count += len((stream * mask[..., None]).sum(1) / mask.sum(1, keepdims=True))
        return Done(count)

    return encoded


def graphs(work: Work, *, int8: bool) -> list[Path]:
    """Files in the folder of the work: the plain graph and the fused one, in the precision wanted."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.transformers import optimizer

    plain, fused = (Path(work.folder, f"{name}.onnx") for name in ("plain", "fused"))
    _export(work, plain)
    config = work.config
    heads, width = config["num_attention_heads"], config["hidden_size"]
    made = optimizer.optimize_model(str(plain), model_type="bert", num_heads=heads, hidden_size=width, opt_level=0)
    made.save_model_to_file(str(fused))
    if not int8:
        return [plain, fused]
    quantised = []
    for graph in (plain, fused):
        to = graph.with_stem(f"{graph.stem}-int8")
        # Fused operators are onnxruntime's own: onnx does not know what type they give.
        more = {"DefaultTensorType": onnx.TensorProto.FLOAT}
        quantize_dynamic(str(graph), str(to), weight_type=QuantType.QInt8, extra_options=more)
        quantised.append(to)
    return quantised


def _export(work: Work, to: Path) -> None:
    import torch

    model = _written_out(loaded(work, "eager"), work.config["num_attention_heads"])
    ids = torch.tensor([[9, 8, 7, 6], [5, 4, 3, 2]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    axes = {name: {0: "rows", 1: "tokens"} for name in ("ids", "mask", "stream")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter that needs no other package is told to be old
        torch.onnx.export(
            model,
            (ids, mask),
            str(to),
            input_names=["ids", "mask"],
            output_names=["stream"],
            dynamic_axes=axes,
            dynamo=False,
            opset_version=17,
        )


def _written_out(model: Any, heads: int) -> Any:
    """BERT in operators whose sizes stay open in a trace, in the order that the optimizer looks for."""
    import torch
    from torch import nn

    class Written(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
            bias = (1.0 - mask[:, None, None, :].to(torch.float32)) * -10000.0
            embeddings = self.model.embeddings
            places = torch.arange(ids.shape[1])[None].expand(ids.shape)
            added = embeddings.word_embeddings(ids) + embeddings.token_type_embeddings(torch.zeros_like(ids))
            stream = embeddings.LayerNorm(added + embeddings.position_embeddings(places))
            for layer in self.model.encoder.layer:
                mixed = _attended(layer.attention.self, stream, bias, heads)
                out = layer.attention.output
                stream = out.LayerNorm(out.dense(mixed) + stream)
                hidden = nn.functional.gelu(layer.intermediate.dense(stream))
                stream = layer.output.LayerNorm(layer.output.dense(hidden) + stream)
            return stream  # type: ignore[no-any-return]

    return Written().eval()


def _attended(part: Any, stream: Tensor, bias: Tensor, heads: int) -> Tensor:
    rows, tokens, width = stream.shape

    def split(layer: Callable[[Tensor], Tensor]) -> Tensor:
        return layer(stream).view(rows, tokens, heads, width // heads).permute(0, 2, 1, 3)

    scores = split(part.query) @ split(part.key).transpose(-1, -2) / (width // heads) ** 0.5
    mixed: Tensor = (scores + bias).softmax(-1) @ split(part.value)
    return mixed.permute(0, 2, 1, 3).contiguous().view(rows, tokens, width)
