"""Where attention began: a recurrent encoder-decoder that looks back at its source (Bahdanau et al. 2014).

In the layout of the d2l book, chapter 11.4: the query is the top state of the step before, and what it finds is put in
front of the embedding.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ....core.config import Size, Theirs
from ....core.errors import WeightsError
from ....parts.scores import Additive
from ...formats.folder import INPUTS, Folder
from ...rename import Same, Table, restore
from ..inputs import Outputs, must_hold, sequence, understood

HIDDEN = -1e6  # the book's score of a key beyond the valid length


class Sizes(Theirs):
    """The numbers of the book's encoder and decoder."""

    vocab_size: Size
    embed_size: Size
    num_hiddens: Size
    num_layers: Size


class Recurrent(nn.Module):
    """s_t = GRU(s_{t-1}, [c_t; y_{t-1}]),  c_t = Σ_j softmax_j(a(s_{t-1}, h_j)) h_j,  h = GRU(x)."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        hidden, depth = sizes.num_hiddens, sizes.num_layers
        self.source, self.target = (nn.Embedding(sizes.vocab_size, sizes.embed_size) for _ in range(2))
        self.encoder = nn.GRU(sizes.embed_size, hidden, depth)
        self.decoder = nn.GRU(sizes.embed_size + hidden, hidden, depth)
        self.attention = Additive.Config(hidden=hidden).build(hidden, hidden)
        self.head = nn.Linear(hidden, sizes.vocab_size)

    def read(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """The states of the top layer at every token, [T, B, D], and those of all layers at the last, [L, B, D]."""
        states, last = self.encoder(self.source(source).transpose(0, 1))
        return states, last

    def write(self, target: Tensor, states: Tensor, last: Tensor, visible: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits after each token, the last states, and attention weights; token by token, as each needs the last."""
        encoder_output, logits, weights = states.transpose(0, 1), list[Tensor](), list[Tensor]()
        for token in self.target(target).unbind(1):
            found = self.attention(last[-1].unsqueeze(1), encoder_output).masked_fill(~visible, HIDDEN).softmax(-1)
            x = torch.cat((found @ encoder_output, token.unsqueeze(1)), -1)
            out, last = self.decoder(x.transpose(0, 1), last)
            logits.append(self.head(out[0]))
            weights.append(found[:, 0])
        return torch.stack(logits, 1), last, torch.stack(weights, 1)


def _names(depth: int) -> Table:
    kinds = [f"{kind}_l{layer}" for layer in range(depth) for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    return (
        Same("encoder.embedding.weight", "source.weight"),
        Same("decoder.embedding.weight", "target.weight"),
        *(Same(f"{side}.rnn.{kind}", f"{side}.{kind}") for side in ("encoder", "decoder") for kind in kinds),
        Same("decoder.attention.W_q.weight", "attention.query.weight"),
        Same("decoder.attention.W_k.weight", "attention.key.weight"),
        Same("decoder.attention.w_v.weight", "attention.out.weight"),
        Same("decoder.dense.weight", "head.weight"),
        Same("decoder.dense.bias", "head.bias"),
    )


def outputs(folder: Folder) -> Outputs:
    """What encoder and decoder give for a source and a target."""
    sizes = understood(folder, Sizes)
    must_hold(folder, sizes.num_hiddens, sizes.num_layers)
    model = restore(lambda: Recurrent(sizes), folder, _names(sizes.num_layers))
    source, target = sequence(folder, "src"), sequence(folder, "tgt")
    visible = torch.ones(source.shape[0], 1, source.shape[1], dtype=torch.bool)
    if "src_valid_len" in folder.inputs:
        length = folder.input("src_valid_len")
        if length.shape != source.shape[:1]:
            raise WeightsError(f"{folder.path / INPUTS}: src_valid_len has the shape {list(length.shape)}")
        visible = torch.arange(source.shape[1]) < length[:, None, None]
    states, last = model.read(source)
    logits, final, weights = model.write(target, states, last, visible)
    return {"encoder_outputs": states, "logits": logits, "final_state": final, "attention_weights": weights}
