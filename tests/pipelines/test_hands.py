"""What hands already type on a loaded model: keywords, one text or many, seeds, the model itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict

import pytest
import torch
from typer.testing import CliRunner

from heed import load
from heed.cli import app
from heed.core.contract import NOTHING
from heed.core.errors import InputError
from heed.decode import Beam, Greedy, Sample
from heed.models import Decoder
from heed.pipelines import GenerationConfig, Pipeline
from heed.pipelines.base import short_count, weight_count
from heed.pipelines.generation import Prompts
from heed.weights.edits import Quantised, edit
from tests.pipelines.small import WORDS, bert, gpt2, llama, t5, worded

RUNNER = CliRunner()


class Some(TypedDict):
    max_new_tokens: int
    temperature: float


SOME: Some = {"max_new_tokens": 6, "temperature": 1.5}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Pipeline]:
    return llama(tmp_path_factory.mktemp("hands") / "llama")


@pytest.fixture
def m(pair: tuple[Any, Pipeline]) -> Pipeline:
    return pair[1]


def theirs_of(theirs: Any, text: str, **keywords: Any) -> list[list[int]]:
    """What the reference generates after a text: ids without those that are special."""
    ids = torch.tensor([[WORDS.index(word) for word in text.split()]])
    made = theirs.generate(ids, max_new_tokens=6, do_sample=False, pad_token_id=0, **keywords)
    return [[index for index in _until_end(row[ids.shape[1] :].tolist()) if index > 4] for row in made]


def _until_end(row: list[int]) -> list[int]:
    return row[: row.index(2)] if 2 in row else row


# --- generating ---


def test_a_text_for_a_text_and_a_list_for_a_list(pair: tuple[Any, Pipeline]) -> None:
    theirs, m = pair
    one, other = m.generate("the cat", max_new_tokens=6), m.generate("a dog ran home", max_new_tokens=6)
    assert isinstance(one, str)
    assert m.generate(["the cat", "a dog ran home"], max_new_tokens=6) == [one, other]
    assert m.generate(("the cat",), max_new_tokens=6) == [one]
    assert m.generate([]) == []
    assert m.completions([]) == []
    assert [WORDS.index(word) for word in one.split()] == theirs_of(theirs, "the cat")[0]
    assert m.completions("the cat", max_new_tokens=6)[0].text == one


def test_beams_give_the_best_that_the_reference_finds(pair: tuple[Any, Pipeline]) -> None:
    theirs, m = pair
    found = m.generate("the cat", max_new_tokens=6, num_beams=4, num_return_sequences=3, length_penalty=0.5)
    wanted = theirs_of(theirs, "the cat", num_beams=4, num_return_sequences=3, length_penalty=0.5, early_stopping=True)
    assert [[WORDS.index(word) for word in text.split()] for text in found] == wanted
    many = m.generate(["the cat", "a"], max_new_tokens=6, num_beams=4, num_return_sequences=3, length_penalty=0.5)
    assert many[0] == found
    assert m.generate("the cat", max_new_tokens=6, num_beams=4, length_penalty=0.5) == found[0]
    single: Any = m.generate("the cat", max_new_tokens=6, num_beams=4, num_return_sequences=1, length_penalty=0.5)
    assert single == found[0]


def test_streams_join_to_the_text(m: Pipeline) -> None:
    whole = m.generate("the cat", **SOME, seed=3)
    pieces = m.generate("the cat", stream=True, **SOME, seed=3)
    assert isinstance(pieces, Iterator)
    assert "".join(pieces) == "".join(m.stream("the cat", **SOME, seed=3)) == whole
    stop = whole.split()[1]
    assert "".join(m.stream("the cat", stop=stop, **SOME, seed=3)) == m.generate("the cat", stop=[stop], **SOME, seed=3)
    with pytest.raises(InputError, match="a stream is of one text"):
        m.stream(["the", "cat"])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="a stream is one text"):
        m.stream("the", num_return_sequences=2, temperature=1.0)


def test_samples_have_seeds_that_are_told(m: Pipeline) -> None:
    drawn = {m.generate("the cat", **SOME) for _ in range(8)}
    assert len(drawn) > 1  # every call draws its own
    again = m.generate("the cat", **SOME)
    assert m.last_seed is not None
    assert m.generate("the cat", **SOME, seed=m.last_seed) == again
    (greedy,) = m.completions("the cat")
    assert greedy.seed is None  # nothing was drawn
    texts = ["the cat", "a dog", "it"]
    many = m.completions(texts, **SOME, num_return_sequences=3)
    assert len({one.seed for some in many for one in some}) == 9
    for text, some in zip(texts, many, strict=True):
        for one in some:
            assert one.seed is not None
            assert m.generate(text, **SOME, seed=one.seed) == one.text
    first = many[0][0].seed
    assert first is not None
    assert m.generate(texts, **SOME, num_return_sequences=3, seed=first) == [
        [one.text for one in some] for some in many
    ]


def test_the_end_is_not_shown_even_where_it_is_a_word(m: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    words = m.generate("the cat", **SOME, seed=3).split()
    last = next(word for place, word in enumerate(words) if place and word not in words[:place])
    monkeypatch.setattr(type(m), "ends", (WORDS.index(last),))
    assert "".join(m.stream("the cat", **SOME, seed=3)).split() == words[: words.index(last)]


def test_a_prefix_comes_beside_the_usual_number_of_tokens_and_every_batch_draws_its_own(m: Any) -> None:
    def asked(first: int, **keywords: Any) -> dict[str, Any]:
        config = GenerationConfig(strategy=Sample(seed=5), **keywords)
        told: dict[str, Any] = m._generated(lambda *_, **named: named, Prompts([[5, 6]], NOTHING), config, first)
        return told

    usual = m.default_length([[5, 6]])
    assert asked(0)["max_new_tokens"] == usual
    assert asked(0, prefix="the cat")["max_new_tokens"] == usual + 2
    assert asked(0, prefix="the cat", max_new_tokens=3)["max_new_tokens"] == 3
    assert [asked(first)["strategy"].seed for first in (0, 8)] == [5, 13]


def test_places_and_frames_leave_room_for_what_is_generated(tmp_path: Path) -> None:
    _, made = gpt2(tmp_path)
    m: Any = made
    assert [m.default_length([[5] * length]) for length in (1, 22, 23)] == [min(m.context, 23), 2, 1]
    worded(tmp_path)  # now with a frame around every text
    framed: Any = load(tmp_path)
    assert framed.tokenizer.framed("the cat").ids == [1, 5, 6, 2]
    assert framed.prompt("the cat") == [1, 5, 6]  # nothing is continued after its end


@torch.no_grad()
def test_log_probabilities_are_those_of_the_model(pair: tuple[Any, Pipeline]) -> None:
    theirs, m = pair
    strategies: tuple[dict[str, Any], ...] = ({"temperature": 0.7, "seed": 1}, {"num_beams": 3}, {})
    for strategy in strategies:
        (found,) = m.completions("the cat", max_new_tokens=6, logprobs=True, **strategy)
        assert found.logprobs is not None
        ids = [5, 6, *(one.id for one in found.logprobs)]
        logits = theirs(torch.tensor([ids])).logits[0].log_softmax(-1)
        wanted = [float(logits[place - 1, ids[place]]) for place in range(2, len(ids))]
        assert [one.logprob for one in found.logprobs] == pytest.approx(wanted, abs=1e-5)
        assert [one.token for one in found.logprobs] == [WORDS[index] for index in ids[2:]]
    assert m.completions("the cat")[0].logprobs is None
    assert set(m.completions("the cat")[0].data()) == {"text", "score", "tokens", "why"}


def test_a_configuration_is_possible_and_keywords_go_before_it(m: Pipeline) -> None:
    config = GenerationConfig(strategy=Sample(temperature=1.5, seed=4), max_new_tokens=6)
    assert m.generate("the cat", config) == m.generate("the cat", **SOME, seed=4)
    assert m.generate("the cat", config, seed=5) == m.generate("the cat", **SOME, seed=5)
    assert m.generate("the cat", config, temperature=0) == m.generate("the cat", max_new_tokens=6)
    assert len(m.generate("the cat", config, num_return_sequences=2)) == 2
    beams = GenerationConfig(strategy=Beam(beams=3), num_return_sequences=2, max_new_tokens=6)
    several: Any = m.generate("the cat", beams)  # as many as it says
    assert several == m.generate("the cat", num_beams=3, num_return_sequences=2, max_new_tokens=6)
    with pytest.raises(InputError, match="takes a GenerationConfig after the text, not int"):
        m.generate("the cat", 20)  # type: ignore[call-overload]


SETTLED: dict[str, tuple[dict[str, Any], object]] = {
    "nothing": ({}, Greedy()),
    "no temperature": ({"temperature": 0, "top_p": 0.5}, Greedy()),
    "top-k": ({"top_k": 5, "min_p": 0.1, "seed": 1}, Sample(top_k=5, min_p=0.1, seed=1)),
    "by another name": ({"do_sample": True, "repetition_penalty": 1.2, "seed": 1}, Sample(repetition=1.2, seed=1)),
    "no sampling": ({"do_sample": False}, Greedy()),
    "penalised": ({"repetition": 1.3}, Greedy(repetition=1.3)),
    "beams": ({"num_beams": 3, "length_penalty": 2.0, "do_sample": False}, Beam(beams=3, length_penalty=2.0)),
    "one beam": ({"num_beams": 1}, Greedy()),
    "cold beams": ({"num_beams": 2, "temperature": 0}, Beam(beams=2)),
    "None is as good as nothing": ({"temperature": None, "seed": None}, Greedy()),
}


@pytest.mark.parametrize(("keywords", "strategy"), SETTLED.values(), ids=SETTLED)
def test_keywords_become_a_strategy(keywords: dict[str, Any], strategy: object) -> None:
    assert GenerationConfig().given("generate", keywords).strategy == strategy


def test_keywords_change_the_usual_strategy_only_where_they_say_so() -> None:
    search = GenerationConfig(strategy=Beam(beams=7))
    assert search.given("generate", {"num_return_sequences": 2}).strategy == Beam(beams=7, best=2)
    assert search.given("generate", {"seed": 3, "do_sample": False}).strategy == Beam(beams=7)
    assert search.given("generate", {"num_beams": 1}).strategy == Greedy()
    draw = GenerationConfig(strategy=Sample(top_k=4, temperature=2.0))
    assert draw.given("generate", {"temperature": 0.5, "seed": 1}).strategy == Sample(top_k=4, temperature=0.5, seed=1)
    assert draw.given("generate", {"num_beams": 1}).strategy == Sample(top_k=4, temperature=2.0)
    assert draw.given("generate", {"do_sample": False}).strategy == Greedy()


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a slip": ({"temprature": 1.0}, r"generate takes no temprature; did you mean temperature\?"),
    "max_length": ({"max_length": 9}, "it counts the prompt, too; write max_new_tokens="),
    "max_tokens": ({"max_tokens": 9}, "generate takes no max_tokens; write max_new_tokens="),
    "n": ({"n": 2}, "write num_return_sequences="),
    "a mask": ({"attention_mask": [1]}, r"go to m\(input_ids, attention_mask\)"),
    "a device": ({"device_map": "auto"}, "write device="),
    "weights": ({"output_attentions": True}, r"m\.attentions"),
    "a dict": ({"return_dict": True}, r"result\.to_tuple"),
    "a pad": ({"pad_token_id": 0}, "padding is stamped"),
    "early": ({"early_stopping": True}, "early="),
    "several greedy ones": ({"num_return_sequences": 2}, "greedy decoding gives one text, not 2"),
    "more than beams": ({"num_beams": 2, "num_return_sequences": 3}, "2 beams cannot give the 3 best"),
    "beams and chance": ({"num_beams": 2, "top_p": 0.5}, "top_p cannot go with it"),
    "drawn beams": ({"num_beams": 2, "do_sample": True}, "do_sample cannot go with it"),
    "penalised beams": ({"num_beams": 2, "repetition": 1.2}, "takes no repetition penalty"),
    "a cold draw": ({"do_sample": True, "temperature": 0}, "temperature=0 is greedy"),
    "no draw": ({"do_sample": False, "top_k": 3}, "do_sample=False draws nothing, and top_k says"),
    "much": ({"top_p": 2.0}, "top_p is 2.0; it must be less than or equal to 1"),
    "no beams": ({"num_beams": 0}, "num_beams is 0; it must be greater than 0"),
    "nothing": ({"max_new_tokens": 0}, "max_new_tokens is 0"),
    "stop": ({"stop": 3}, "stop must be a text or a list of texts, not int"),
    "stops": ({"stop": [3]}, r"stop\.0 is 3"),
    "a seed": ({"temperature": 1.0, "seed": -1}, "seed is -1"),
}


@pytest.mark.parametrize(("keywords", "words"), WRONG.values(), ids=WRONG)
def test_wrong_keywords_are_explained(m: Pipeline, keywords: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        m.generate("the cat", **keywords)


@pytest.mark.parametrize("wrong", [3, None, b"the", {"a": 1}, ["the", 3], torch.tensor([5]), [["the"]]])
def test_what_is_no_text(m: Pipeline, wrong: Any) -> None:
    with pytest.raises(InputError, match="text"):
        m.generate(wrong)


def test_a_chat_takes_keywords_and_a_text(m: Pipeline) -> None:
    said = [{"role": "user", "content": "the cat"}]
    whole = m.chat(said, max_new_tokens=5)
    assert m.chat("the cat", max_new_tokens=5) == whole == "".join(m.chat(said, stream=True, max_new_tokens=5))
    assert m.chat(said, **SOME, seed=2) == m.chat(said, **SOME, seed=2)
    assert len(m.chat(said, **SOME, num_return_sequences=3)) == 3
    with pytest.raises(InputError, match=r"chat takes no max_tokens; write max_new_tokens="):
        m.chat(said, max_tokens=3)  # type: ignore[call-overload]


def test_an_encoder_decoder_translates_one_or_many(tmp_path: Path) -> None:
    _, m = t5(tmp_path)
    one = m.translate("the cat", max_new_tokens=5)
    assert isinstance(one, str)
    assert m.translate(["the cat", "a"], max_new_tokens=5)[0] == one == m.generate("the cat", max_new_tokens=5)
    assert "".join(m.stream("the cat", max_new_tokens=5)) == one
    assert len(m.translate("the cat", **SOME, num_return_sequences=3)) == 3
    with pytest.raises(InputError, match=r"translate takes no stream; write m\.generate"):
        m.translate("the cat", stream=True)  # type: ignore[call-overload]
    drawn = m.completions(["a", "the cat"], **SOME, num_return_sequences=2)
    assert drawn[1][1].seed is not None
    assert m.translate("the cat", **SOME, seed=drawn[1][1].seed) == drawn[1][1].text
    assert m.translate([]) == []
    with pytest.raises(InputError, match="translate takes no max_length"):
        m.translate("the cat", max_length=5)  # type: ignore[call-overload]


# --- the command line ---


def test_a_seed_is_told_once_and_draws_the_same_again(tmp_path: Path) -> None:
    llama(tmp_path)
    words = ["run", str(tmp_path), "--temperature", "1.5", "--max-new-tokens", "6"]
    first = RUNNER.invoke(app, [*words, "the cat", "a dog"])
    assert first.exit_code == 0, first.output
    (line,) = [line for line in first.stderr.splitlines() if line.startswith("seed ")]
    seed = line.split()[1]
    assert line == f"seed {seed} (--seed {seed} draws the same again)"
    again = RUNNER.invoke(app, [*words, "the cat", "a dog", "--seed", seed])
    assert again.stdout == first.stdout
    assert "seed" not in again.stderr
    assert "seed" not in RUNNER.invoke(app, ["run", str(tmp_path), "the cat", "--max-new-tokens", "3"]).stderr
    assert "seed" not in RUNNER.invoke(app, [*words, "the cat", "--quiet"]).stderr
    told = json.loads(RUNNER.invoke(app, [*words, "the cat", "--json", "--num-return-sequences", "2"]).stdout)
    assert told["answers"][1]["seed"] == told["answers"][0]["seed"] + 1
    shown = RUNNER.invoke(app, [*words, "the cat", "--seed", str(told["answers"][1]["seed"])]).stdout
    assert shown.strip() == ("the cat" + told["answers"][1]["text"]).strip()


# --- one or many, of everything else ---


def test_encoders_take_one_text_or_many(tmp_path: Path) -> None:
    _, masked = bert(tmp_path / "masks")
    assert masked.embed("the cat").shape == (16,)
    assert torch.equal(masked.embed(["the cat"])[0], masked.embed("the cat"))
    assert masked.embed(["the cat", "a"]).shape == (2, 16)
    ((best, *_), *rest) = masked.fill("the [MASK] sat", top_k=3)
    assert not rest
    assert masked.fill(["the [MASK] sat", "[MASK] [MASK]"], top_k=3)[0][0][0] == best
    assert [len(some) for some in masked.fill(["the [MASK] sat", "[MASK] [MASK]"], top_k=3)] == [1, 2]
    assert masked.fill([]) == []
    _, classes = bert(tmp_path / "classes", "BertForSequenceClassification", num_labels=3)
    one = classes.classify("the cat")
    assert [p.label for p in one] == [p.label for p in classes.classify(["the cat"])[0]]
    pair = classes.classify(("the cat", "a dog"))  # a tuple is a pair
    assert pair[0].p == pytest.approx(classes.classify([("the cat", "a dog")])[0][0].p)
    assert classes.classify([]) == []
    _, tags = bert(tmp_path / "tags", "BertForTokenClassification", num_labels=2)
    assert tags.tag("the cat") == tags.tag(["the cat"])[0]
    assert [token for token, _ in tags.tag("the cat")] == ["[CLS]", "the", "cat", "[SEP]"]
    with pytest.raises(InputError, match="cannot generate: it is an encoder"):
        tags.generate("the cat")


def test_vectors_are_of_length_one_where_that_is_asked_for(tmp_path: Path) -> None:
    _, m = bert(tmp_path)
    whole, unit = (m.embed("the cat", unit=asked) for asked in (False, True))
    assert float(unit.norm()) == pytest.approx(1)
    assert abs(float(whole.norm()) - 1) > 0.1
    assert torch.allclose(whole / whole.norm(), unit)


def test_texts_of_any_length_come_back_in_their_order(tmp_path: Path) -> None:
    _, m = bert(tmp_path)
    texts = ["a dog ran home", "the", "it sat"]
    assert torch.allclose(m.embed(texts), torch.stack([m.embed(text) for text in texts]), atol=1e-6)


@torch.no_grad()
def test_the_second_text_of_a_pair_has_a_segment_of_its_own(tmp_path: Path) -> None:
    theirs, m = bert(tmp_path, "BertForSequenceClassification", num_labels=3)
    framed = m.tokenizer.framed("the cat", "a dog")
    assert framed.segments == [0, 0, 0, 0, 1, 1, 1]
    ids, segments = torch.tensor([framed.ids]), torch.tensor([framed.segments])
    wanted = theirs(ids, token_type_ids=segments).logits.softmax(-1)[0]
    found = {one.label: one.p for one in m.classify(("the cat", "a dog"))}
    assert found == pytest.approx({f"LABEL_{index}": float(p) for index, p in enumerate(wanted)}, abs=1e-7)


def test_a_text_that_just_fits_is_taken(tmp_path: Path) -> None:
    """A text with a mask is never cut, so it must not be refused either."""
    _, made = bert(tmp_path)
    m: Any = made
    words = ["[MASK]", *["the"] * (m.longest - 3)]
    assert len(m.fill(" ".join(words))) == 1
    with pytest.raises(InputError, match=f"the model has places for {m.longest}"):
        m.fill(" ".join([*words, "the"]))


# --- the model itself ---


def test_a_model_tells_what_it_is(m: Pipeline, tmp_path: Path) -> None:
    told = repr(m)
    assert told.splitlines()[0] == "TextGeneration: a language model (Llama)"
    assert f"{short_count(weight_count(m.model))} parameters, float64, on cpu" in told
    assert f"vocabulary: {len(WORDS)} tokens" in told
    assert m.can == ("generate", "stream", "completions", "attentions", "chat")
    assert "can: generate" in told
    assert isinstance(m.config, Decoder.Config)
    assert m.config.width == 16
    assert (m.device, m.dtype) == (torch.device("cpu"), torch.float64)
    _, small = gpt2(tmp_path / "gpt2")
    assert "context: 24 tokens" in repr(small)
    assert "(GPT2)" in repr(small)
    _, encoder = bert(tmp_path / "bert", "BertForSequenceClassification")
    assert encoder.can == ("embed", "classify", "attentions")


def test_a_model_moves(tmp_path: Path) -> None:
    _, m = gpt2(tmp_path)
    assert m.to("float32") is m
    assert m.dtype == torch.float32
    assert m.to(torch.bfloat16).dtype == torch.bfloat16
    assert m.to("cpu", "float32").dtype == torch.float32
    assert m.generate("the cat", max_new_tokens=3)
    for wrong, words in (("cuda", "there is no device 'cuda'"), ("gpu", "is no device"), (torch.int8, "quantise=")):
        if wrong != "cuda" or not torch.cuda.is_available():
            with pytest.raises(InputError, match=words):
                m.to(wrong)
    with pytest.raises(InputError, match="name a device or a dtype"):
        m.to()


def test_quantised_weights_are_counted_as_weights(tmp_path: Path) -> None:
    _, m = gpt2(tmp_path)
    before = weight_count(m.model)
    assert before == sum(weight.numel() for weight in m.model.parameters())
    edit(m.to("float32").model, Quantised(bits="int8"))
    assert weight_count(m.model) == before
    assert "quantised" in repr(m)


def test_numbers_for_people() -> None:
    shown = {7: "7", 1_500: "1.5k", 10_300: "10.3k", 124_439_808: "124M", 6_738_415_616: "6.7B"}
    assert {count: short_count(count) for count in shown} == shown
