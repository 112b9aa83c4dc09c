"""CTC: the loss is the sum over all paths, written out as loops; beside torch and the reference library."""

from __future__ import annotations

from itertools import product
from math import log
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from heed.core.errors import InputError
from heed.decode.ctc import best_path, collapsed, prefix_beam
from heed.parts.outputs.ctc import ctc, least_frames
from heed.parts.outputs.loss import NO_LABEL


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def every_path(logits: Tensor, blank: int) -> dict[tuple[int, ...], float]:
    """p of all labels there can be: each path, its product, and what it reads as."""
    p, found = logits.softmax(-1).tolist(), dict[tuple[int, ...], float]()
    for path in product(range(logits.shape[1]), repeat=len(logits)):
        labels, last, probability = list[int](), None, 1.0
        for frame, name in enumerate(path):
            probability *= p[frame][name]
            if name not in (blank, last):
                labels.append(name)
            last = name
        found[tuple(labels)] = found.get(tuple(labels), 0.0) + probability
    return found


def written_out(logits: Tensor, labels: list[int], blank: int) -> float:
    """Graves et al. 2006, eqs. 5-8: α_t(s) over the labels with blanks between, before and behind them."""
    p = logits.softmax(-1).tolist()
    names = [blank]
    for label in labels:
        names += [label, blank]
    alpha = [0.0] * len(names)
    alpha[0] = p[0][blank]
    if labels:
        alpha[1] = p[0][names[1]]
    for t in range(1, len(p)):
        before, alpha = alpha, [0.0] * len(names)
        for s, name in enumerate(names):
            total = before[s]
            if s >= 1:
                total += before[s - 1]
            if s >= 2 and name != blank and name != names[s - 2]:
                total += before[s - 2]
            alpha[s] = total * p[t][name]
    return alpha[-1] + (alpha[-2] if labels else 0.0)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(frames=st.integers(1, 5), names=st.integers(2, 4), seed=st.integers(0, 99), data=st.data())
def test_the_loss_is_the_sum_over_all_paths(frames: int, names: int, seed: int, data: st.DataObject) -> None:
    blank = data.draw(st.integers(0, names - 1))
    logits = drawn(frames, names, seed=seed)
    every = every_path(logits, blank)
    assert sum(every.values()) == pytest.approx(1.0)
    for labels, probability in every.items():
        assert written_out(logits, list(labels), blank) == pytest.approx(probability, rel=1e-10)
        if labels:
            loss = ctc(logits[None], torch.tensor([frames]), torch.tensor([labels]), blank)
            assert float(loss.total) == pytest.approx(-log(probability), rel=1e-9)


def ragged() -> tuple[Tensor, Tensor, Tensor]:
    labels = torch.tensor([[1, 1, 3, 2], [2, 4, NO_LABEL, NO_LABEL], [3, NO_LABEL, NO_LABEL, NO_LABEL]])
    return drawn(3, 9, 5), torch.tensor([9, 6, 1]), labels


def test_padding_changes_nothing() -> None:
    logits, frames, labels = ragged()
    alone = [
        ctc(logits[row : row + 1, :length], frames[row : row + 1], labels[row : row + 1, : int(count)])
        for row, (length, count) in enumerate(zip(frames.tolist(), (labels >= 0).sum(1).tolist(), strict=True))
    ]
    for row, length in enumerate(frames.tolist()):
        logits[row, length:] = 1e3
    held = logits.clone().requires_grad_()
    loss = ctc(held, frames, labels)
    assert float(loss.total.detach()) == pytest.approx(sum(float(one.total) for one in alone), rel=1e-12)
    loss.total.backward()
    assert held.grad is not None
    for row, length in enumerate(frames.tolist()):
        assert bool((held.grad[row, length:] == 0).all())
        assert bool((held.grad[row, :length] != 0).any())


def test_a_row_without_labels_asks_nothing() -> None:
    logits, frames, labels = ragged()
    wanted = ctc(logits[1:], frames[1:], labels[1:])
    labels[0] = NO_LABEL
    held = logits.clone().requires_grad_()
    loss = ctc(held, frames, labels)
    assert float(loss.total.detach()) == pytest.approx(float(wanted.total), rel=1e-12)
    loss.total.backward()
    assert held.grad is not None
    assert bool((held.grad[0] == 0).all())


def test_labels_that_no_path_reads_as_are_refused() -> None:
    assert least_frames(torch.tensor([[1, 1, 2, 2], [1, 2, 1, NO_LABEL], [NO_LABEL] * 4])).tolist() == [6, 3, 0]
    logits = drawn(2, 5, 4)
    fits = torch.tensor([[1, 1, 2, 3], [2, 1, NO_LABEL, NO_LABEL]])
    assert bool(ctc(logits, torch.tensor([5, 2]), fits).total.isfinite())
    with pytest.raises(InputError, match="row 0 has 4 frames, and its 4 labels need 5"):
        ctc(logits, torch.tensor([4, 2]), fits)
    with pytest.raises(InputError, match="the labels hold 0, which is the blank"):
        ctc(logits, torch.tensor([5, 5]), torch.tensor([[1, 0], [1, 2]]))


def test_half_precision_is_summed_in_single() -> None:
    logits, frames, labels = ragged()
    wanted = float(ctc(logits, frames, labels).total)
    found = ctc(logits.bfloat16(), frames, labels).total
    assert found.dtype == torch.float32
    assert float(found) == pytest.approx(wanted, rel=2e-2)  # bfloat16 has 8 bits


@torch.no_grad()
def test_it_is_the_loss_of_wav2vec2() -> None:
    sizes: dict[str, Any] = {"conv_dim": (12, 8), "conv_kernel": (4, 3), "conv_stride": (2, 2)}
    heads: dict[str, Any] = {"num_attention_heads": 4, "num_hidden_layers": 1, "intermediate_size": 24}
    more: dict[str, Any] = {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "hidden_size": 16}
    for reduction in ("sum", "mean"):
        config = transformers.Wav2Vec2Config(vocab_size=11, ctc_loss_reduction=reduction, **sizes, **heads, **more)
        torch.manual_seed(0)
        model = transformers.Wav2Vec2ForCTC(config).eval()
        labels = torch.tensor([[3, 3, 4, 5], [4, 6, NO_LABEL, NO_LABEL]])
        given = model(input_values=drawn(2, 61).float(), labels=labels)
        frames = torch.full((2,), given.logits.shape[1])
        rows = [ctc(given.logits[row : row + 1], frames[:1], labels[row : row + 1]).total for row in range(2)]
        mine = sum(rows) if reduction == "sum" else (rows[0] / 4 + rows[1] / 2) / 2
        assert float(mine) == pytest.approx(float(given.loss), rel=1e-6)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(frames=st.integers(1, 5), names=st.integers(2, 4), seed=st.integers(0, 99), data=st.data())
def test_enough_beams_find_the_most_probable_labels(frames: int, names: int, seed: int, data: st.DataObject) -> None:
    blank = data.draw(st.integers(0, names - 1))
    logits = 2 * drawn(frames, names, seed=seed)
    every = every_path(logits, blank)
    found = prefix_beam(logits, blank, beams=2000)
    assert {one.labels for one in found} == set(every)
    for one in found:
        assert one.score == pytest.approx(log(every[one.labels]), rel=1e-9, abs=1e-12)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    some = prefix_beam(logits, blank, beams=3)
    assert len(some) <= 3
    for one in some:  # with few beams a lower bound
        assert one.score <= log(every[one.labels]) + 1e-12


def test_the_best_labels_are_not_those_of_the_best_path() -> None:
    """Graves et al. 2006, sec. 3.2: two blanks make the best path, and `a` the best labels."""
    logits = torch.tensor([[0.6, 0.4], [0.6, 0.4]]).log()
    assert best_path(logits, 0) == ()
    best, other = prefix_beam(logits, 0, beams=2)
    assert best.labels == (1,)
    assert best.score == pytest.approx(log(0.64))
    assert other.labels == ()
    assert prefix_beam(logits, 0, beams=1)[0].labels == ()
    with pytest.raises(InputError, match="0 beams find nothing"):
        prefix_beam(logits, 0, 0)


@pytest.mark.parametrize("beams", [1, 2, 4])
def test_names_that_are_passed_over_change_nothing(beams: int) -> None:
    """All names considered gives the same as those that can lead to one of the best."""
    for seed in range(20):
        logits = 3 * drawn(12, 9, seed=seed)
        found = prefix_beam(logits, 0, beams)
        assert found == plainly(logits, 0, beams)


def plainly(logits: Tensor, blank: int, beams: int) -> list[Any]:
    """The same search that looks at every name."""
    from heed.decode.ctc import Labelled, _moved, _Sums

    logs = logits.log_softmax(-1)
    live: dict[tuple[int, ...], _Sums] = {(): _Sums(0.0, -torch.inf)}
    for frame in logs.tolist():
        live = _moved(live, frame, [name for name in range(len(frame)) if name != blank], blank)
        live = dict(sorted(live.items(), key=lambda pair: (-pair[1].total, pair[0]))[:beams])
    return [Labelled(labels, sums.total) for labels, sums in live.items()]


def test_paths_are_read() -> None:
    assert collapsed([0, 1, 1, 0, 1, 2, 2, 0], 0) == (1, 1, 2)
    assert collapsed([3, 3, 1, 3], 3) == (1,)
    assert collapsed([], 0) == ()
