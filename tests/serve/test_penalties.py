"""What was written is less probable, by as much as is said; what is told of the model stays its own."""

from __future__ import annotations

import pytest
import torch

from heed.core.errors import InputError
from heed.serve import Request
from heed.serve.writer import Writer


def test_penalties_are_taken_off_logits() -> None:
    logits = torch.tensor([3.0, 2.0, 0.9])
    request = Request(prompt=[2, 2, 2], logprobs=0, frequency_penalty=0.5, presence_penalty=0.25)
    writer = Writer(request, [2, 2, 2], limit=9, ends=())
    told = [event for _ in range(9) for event in writer.write(logits)]
    wanted, counts = [], [0, 0, 0]
    for _ in range(9):
        rated = [float(logits[i]) - 0.5 * counts[i] - (0.25 if counts[i] else 0) for i in range(3)]
        wanted.append(rated.index(max(rated)))
        counts[wanted[-1]] += 1
    assert writer.written == wanted, "the prompt is not counted"
    assert len(set(wanted)) == 3
    own = logits.log_softmax(0)
    assert [event.logprob for event in told] == pytest.approx([float(own[token]) for token in wanted])
    assert logits.tolist() == pytest.approx([3.0, 2.0, 0.9]), "what the model gave is not changed"


def test_a_penalty_is_a_number() -> None:
    for name in ("frequency_penalty", "presence_penalty"):
        with pytest.raises(InputError, match=name):
            Request(prompt=[1], **{name: float("nan")})  # type: ignore[arg-type]
