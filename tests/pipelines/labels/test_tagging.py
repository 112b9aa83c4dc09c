"""Labels of words and the entities they spell: as seqeval reads them, of any checkpoint that labels tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from seqeval.scheme import IOB2, IOBES, Entities

from heed.core.errors import InputError
from heed.pipelines import Prediction
from heed.pipelines.labels.tagging import Chunk, Scheme, TaggedWords, chunks, scheme_of
from heed.text.alignment import words_in
from tests.pipelines.small import BERT, opened

THEIRS = {"iob2": IOB2, "iobes": IOBES}
LABELS = {
    "iob2": ["O", "B-x", "I-x", "B-y-z", "I-y-z"],
    "iobes": ["O", "B-x", "I-x", "E-x", "S-x", "B-y", "I-y", "E-y", "S-y"],
}


@pytest.mark.parametrize("scheme", get_args(Scheme))
@given(draw=st.data())
def test_entities_are_those_of_seqeval(scheme: Scheme, draw: st.DataObject) -> None:
    labels = draw.draw(st.lists(st.sampled_from(LABELS[scheme]), min_size=1, max_size=12))
    (theirs,) = Entities([labels], THEIRS[scheme]).entities
    wanted = [Chunk(entity.tag, entity.start, entity.end) for entity in theirs]
    assert sorted(chunks(labels, scheme), key=lambda chunk: chunk.first) == wanted


def test_schemes_by_their_look() -> None:
    assert scheme_of(LABELS["iob2"]) == "iob2"
    assert scheme_of(LABELS["iobes"]) == "iobes"
    assert scheme_of(["O", "S-x"]) == "iobes"
    for other in (["NOUN", "VERB"], ["O", "I-x"], ["B-x", "I-x", "PER"], ["O"], []):
        assert scheme_of(other) is None


def test_entities_stand_in_the_text() -> None:
    text = "In New  York, Anna sat."
    labels = ["O", "B-LOC", "I-LOC", "O", "B-PER", "O", "O"]
    tagged = TaggedWords(words_in(text), [Prediction(label, 0.5 + 0.1 * i) for i, label in enumerate(labels)], "iob2")
    place, person = tagged.entities
    assert (place.text, place.label, place.words) == ("New  York", "LOC", (1, 3))
    assert text[place.start : place.end] == place.text
    assert place.probability == pytest.approx(0.65)
    assert (person.text, person.label) == ("Anna", "PER")
    assert tagged.told().text.splitlines()[1] == "New\tB-LOC\t60.0%"
    assert [one["text"] for one in tagged.told().data["entities"]] == ["New  York", "Anna"]
    assert TaggedWords(words_in("a"), [Prediction("X", 1.0)], None).entities == []


def test_any_tagged_checkpoint_labels_words(tmp_path: Path) -> None:
    """By the logits of the first token of each, which transformers gives, too."""
    torch.manual_seed(0)
    names = {0: "O", 1: "B-X", 2: "I-X"}
    config = transformers.BertConfig(**{**BERT, "id2label": names, "label2id": {b: a for a, b in names.items()}})
    theirs, pipeline = opened(transformers.BertForTokenClassification(config), tmp_path)
    words = ["the", "cat", "slept", "home"]
    tagged = pipeline.tag(words=words)
    ids = torch.tensor([pipeline.tokenizer.framed(" ".join(words)).ids])
    with torch.no_grad():
        logits = theirs(input_ids=ids).logits[0, 1:-1]
    assert tagged.labels == [names[number] for number in logits.argmax(-1).tolist()]
    assert [one.p for _, one in tagged] == pytest.approx(logits.softmax(-1).amax(-1).tolist(), abs=1e-5)
    assert pipeline.tag(words=[words, words[:2]])[0] == tagged
    assert len(pipeline.tag("the cat")) == 4  # tokens, as ever
    many = pipeline.tag(words=["cat"] * 60)  # more than there are places
    assert len(many) == 60
    mistaken: dict[str, Any] = {"a list of texts": "the cat", "and not both": ["a", ["b"]]}
    for told, wrong in mistaken.items():
        with pytest.raises(InputError, match=told):
            pipeline.tag(words=wrong)
    with pytest.raises(InputError, match="texts or words, not both"):
        pipeline.tag("the", words=["cat"])  # type: ignore[call-overload]
    with pytest.raises(InputError, match="a sentence of no words"):
        pipeline.tag(words=[[]])
