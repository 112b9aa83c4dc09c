"""heed beside `transformers`, live: a random tiny model is saved by one, opened by the other, and they must agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from heed import weights
from heed.core.contract import Where
from heed.models import Decoder
from heed.weights import Opened
from heed.weights.replays.greedy import greedy

transformers.utils.logging.disable_progress_bar()


def saved(model: Any, folder: Path, seed: int = 0) -> Any:
    """The model in float64, with random weights that are not tiny, saved by its library and loaded again."""
    draw = torch.Generator().manual_seed(seed)
    model = model.double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            spread = parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 0.3
            base = 1.0 if parameter.dim() == 1 and bool((parameter == 1).all()) else 0.0
            parameter.copy_(base + spread * torch.randn(parameter.shape, generator=draw, dtype=torch.float64))
    model.save_pretrained(folder)
    return type(model).from_pretrained(folder, dtype=torch.float64).eval()  # its tensors lie as those of the way back


def ids(rows: int, length: int, vocabulary: int, seed: int = 0) -> Tensor:
    """Token ids that avoid the special ones at the low end."""
    return torch.randint(3, vocabulary, (rows, length), generator=torch.Generator().manual_seed(seed))


def close(made: Tensor, wanted: Tensor, tolerance: float) -> None:
    """Equal within a share of the largest magnitude."""
    gap = (made.double() - wanted.double()).abs().max().item()
    assert gap <= tolerance * max(1.0, wanted.abs().max().item()), f"differs by {gap:.3g}"


def returns(opened: Opened, folder: Path, model: Any) -> Any:
    """What heed writes, the reference library loads again: the same model, ready to be asked."""
    weights.write(opened, folder)
    again, told = type(model).from_pretrained(folder, output_loading_info=True, dtype=torch.float64)
    assert not told["missing_keys"], told
    assert not told["unexpected_keys"], told
    return again.eval()


@torch.no_grad()
def decoder_agrees(model: Any, folder: Path, *, tolerance: float, length: int = 11) -> Opened:
    """Scores whole, padded on either side and cut into calls; greedy tokens; and the way back."""
    model = saved(model, folder / "theirs")
    opened = weights.load(folder / "theirs")
    assert isinstance(opened.model, Decoder)
    ours, tokens = opened.model, ids(2, length, model.config.vocab_size)
    wanted = model(input_ids=tokens).logits
    close(ours(tokens, Where.run(2, length))[0], wanted, tolerance)

    cut, begin = list[Tensor](), 0
    state: Any = ours.start(2)
    for end in (1, 4, 5, length):
        y, state = ours(tokens[:, begin:end], Where.run(2, end - begin, start=begin), state)
        cut.append(y)
        begin = end
    close(torch.cat(cut, 1), wanted, tolerance)

    short = length - 4  # a row that ends early, padded on the right there and here
    mask = torch.ones_like(tokens)
    mask[1, short:] = 0
    padded = model(input_ids=tokens, attention_mask=mask).logits
    made = ours(tokens, Where.ragged([length, short]))[0]
    close(made[0], padded[0], tolerance)
    close(made[1, :short], padded[1, :short], tolerance)

    left = torch.roll(tokens, length - short, 1)  # and padded on the left there, as for generation
    shown = torch.roll(mask, length - short, 1)
    shown[0] = 1
    steps = 6
    generation = {"max_new_tokens": steps, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    theirs = model.generate(input_ids=left, attention_mask=shown, **generation)[:, length:]
    embeddings = torch.stack((left[0], torch.roll(left[1], short - length)))
    written, logits = greedy(ours, embeddings, Where.ragged([length, short]), steps)
    sure = logits.sort(-1).values.diff(dim=-1)[..., -1].amin() > 10 * tolerance * logits.abs().max()
    assert not sure or torch.equal(written, theirs), (written, theirs)

    again = returns(opened, folder / "ours", model)
    assert torch.equal(again(input_ids=tokens).logits, wanted)
    return opened
