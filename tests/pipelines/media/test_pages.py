"""LayoutLM in use beside `transformers`: boxes of words, spread over their tokens and the frame."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import heed
from heed.core.errors import InputError
from tests.pipelines.small import BERT, HF, WORDS, opened

PAGES = [
    (["the", "cat", "sat"], [[10, 20, 30, 40], [40, 20, 90, 45], [0, 500, 1000, 1000]]),
    (["a", "nonsense", "dog", "ran", "home"], [[1, 2, 3, 4], [5, 6, 7, 8], [9, 9, 9, 9], [0, 0, 1, 1], [7, 7, 8, 9]]),
]


def layoutlm(folder: Path, kind: str = "LayoutLMForTokenClassification", **more: Any) -> tuple[Any, Any]:
    config = HF.LayoutLMConfig(**{**BERT, "num_labels": 3, "max_2d_position_embeddings": 1024, **more})
    return opened(getattr(HF, kind)(config), folder)


def framed(page: tuple[list[str], list[list[int]]]) -> dict[str, torch.Tensor]:
    """As the reference is fed: [CLS] in the first corner of the page, [SEP] in the last."""
    words, boxes = page
    known = [WORDS.index(word) if word in WORDS else WORDS.index("[UNK]") for word in words]
    return {"input_ids": torch.tensor([[1, *known, 2]]), "bbox": torch.tensor([[[0] * 4, *boxes, [1000] * 4]])}


@torch.no_grad()
def test_words_are_tagged(tmp_path: Path) -> None:
    model, m = layoutlm(tmp_path)
    assert set(m.can) == {"embed", "tag"}
    pages = [(words, boxes) for words, boxes in PAGES]
    both = m.tag(pages)
    for page, tagged in zip(pages, both, strict=True):
        p = model(**framed(page)).logits[0, 1:-1].softmax(-1)
        assert [word for word, _ in tagged] == page[0]
        assert [one.p for _, one in tagged] == pytest.approx(p.amax(-1).tolist(), rel=1e-5)
        assert tagged.labels == [f"LABEL_{index}" for index in p.argmax(-1).tolist()]
        assert m.tag(page).labels == tagged.labels
    moved = (PAGES[0][0], [[500, 20, 530, 40], *PAGES[0][1][1:]])
    assert m.tag(moved)[0][1].p != pytest.approx(both[0][0][1].p, rel=1e-3)  # the layout counts


@torch.no_grad()
def test_pages_are_classified_and_embedded(tmp_path: Path) -> None:
    model, m = layoutlm(tmp_path, "LayoutLMForSequenceClassification")
    page, other = PAGES
    p = model(**framed(page)).logits[0].softmax(-1)
    assert [one.p for one in m.classify(page)] == pytest.approx(p.sort(descending=True).values.tolist(), rel=1e-5)
    assert m.classify([page, other])[0] == m.classify(page)
    hidden = model.base_model(**framed(other)).last_hidden_state[0]
    assert torch.allclose(m.embed(other, unit=False), hidden.mean(0), atol=1e-5)
    assert m.embed([page, other]).shape == (2, 16)


@torch.no_grad()
def test_a_long_page_is_read_in_pieces(tmp_path: Path) -> None:
    model, m = layoutlm(tmp_path)  # 24 places
    words, boxes = ["the", "cat"] * 20, [[place, place, place + 1, place + 2] for place in range(40)]
    tagged = m.tag((words, boxes))
    assert len(tagged) == 40
    first = model(**framed((words[:22], boxes[:22]))).logits[0, 1:-1].argmax(-1).tolist()
    rest = model(**framed((words[22:], boxes[22:]))).logits[0, 1:-1].argmax(-1).tolist()
    assert tagged.labels == [f"LABEL_{index}" for index in first + rest]


@torch.no_grad()
def test_a_call_takes_boxes_as_theirs_does(tmp_path: Path) -> None:
    model, m = layoutlm(tmp_path)
    rows = [framed(page) for page in PAGES]
    ids, boxes = torch.zeros(2, 7, dtype=torch.long), torch.zeros(2, 7, 4, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for place, row in enumerate(rows):
        width = row["input_ids"].shape[1]
        ids[place, :width], boxes[place, :width], mask[place, :width] = row["input_ids"][0], row["bbox"][0], 1
    wanted = model(input_ids=ids, bbox=boxes, attention_mask=mask).logits
    made = m(ids, mask, bbox=boxes).logits
    assert torch.allclose(made[mask.bool()], wanted[mask.bool()], atol=1e-6)
    with pytest.raises(InputError, match="give bbox"):
        m(ids)
    with pytest.raises(InputError, match="integers of shape"):
        m(ids, bbox=boxes.float())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("the cat", r"give \(words, boxes\)"),
        (["the cat"], r"give \(words, boxes\)"),
        ((["the"], [[0, 0, 1, 1], [0, 0, 1, 1]]), "1 words and 2 boxes"),
        ((["the"], [[0, 0, 1001, 1]]), "from 0 to 1000"),
        ((["the"], [[0, -1, 1, 1]]), "from 0 to 1000"),
        ((["the"], [[0.5, 0, 1, 1]]), "four integers"),
        ((["the"], [[0, 0, 1]]), "four integers"),
        ((["the"], [[5, 0, 1, 1]]), "ends before it begins"),
        (([], []), "no words"),
    ],
)
def test_what_has_no_layout_is_refused(given: Any, message: str, tmp_path: Path) -> None:
    _, m = layoutlm(tmp_path)
    with pytest.raises(InputError, match=message):
        m.tag(given)
    with pytest.raises(InputError, match=message):
        m.embed(given)


def test_texts_alone_are_refused(tmp_path: Path) -> None:
    _, m = layoutlm(tmp_path)
    for ask in (m.respond, lambda text: m.tag(words=[text]), m, lambda text: heed.load(tmp_path).tag(text)):
        with pytest.raises(InputError, match="boxes"):
            ask("the cat")
