"""Cross-attention of an encoder-decoder: which part of the source it attends to as it generates each token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.contract import Where
from ..decode import generate
from ..parts.look import look
from ..pipelines import Text2TextGeneration
from ..show.heatmap import Figure

CROSS = "decoder.stack.blocks.*.cross.weights"  # the points of the cross-attentions, one per layer


@dataclass(frozen=True, eq=False)
class Alignment:
    """The tokens of a source, the tokens that were generated, and the weights of every cross-attention."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: Tensor  # [layers, heads, target, source]

    @property
    def mean(self) -> Figure:
        """Over all layers and heads."""
        return self._figure("mean of all layers and heads", self.weights.mean((0, 1)))

    def figures(self, part: str) -> Iterator[Figure]:
        """The mean, then every head of every layer."""
        yield self._figure("mean of all layers and heads", self.weights.mean((0, 1)), part)
        for layer, heads in enumerate(self.weights, 1):
            for head, weights in enumerate(heads, 1):
                yield self._figure(f"layer {layer}, head {head}", weights, part)

    def _figure(self, title: str, weights: Tensor, part: str = "") -> Figure:
        return Figure(title, weights.tolist(), self.target, self.source, part)


def align(pipeline: Text2TextGeneration, text: str) -> Alignment:
    """The cross-attention weights of the model's own target for a text.

    The target is generated first, then given again in one call that shows all weights: row t of them is where the model
    attended when it chose token t.
    """
    tokenizer, model = pipeline.tokenizer, pipeline.model
    prompt, given, end = pipeline.prompt(text), pipeline.given([text]), tokenizer.need("end")
    ((generated,),) = generate(model, [prompt], max_new_tokens=pipeline.default_length([prompt]), end=end, given=given)
    answer = [*generated.tokens, end] if generated.why == "end" else list(generated.tokens)
    inputs = torch.tensor([[*prompt, *answer[:-1]]], device=model.device)
    with torch.no_grad(), look(model, CROSS) as seen:
        model(inputs, Where.run(*inputs.shape, device=model.device).beside(given))
    weights = torch.stack([shown[0] for (shown,) in seen.values()])  # [layers, heads, prompt and answer, source]
    source = [*tokenizer.encode(text), end]
    return Alignment(
        tuple(tokenizer.tokens(source)), tuple(tokenizer.tokens(answer)), weights[:, :, len(prompt) - 1 :].cpu()
    )
