"""Proofs on what a run has learnt: the laws and the ways of decoding, on the trained weights themselves in float64."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from ..core.cases import distance
from ..core.contract import NOTHING, Given, Mixer, Where
from ..core.errors import HeedError, RunError
from ..core.laws import BOUND, LAWS, Finding, Law
from ..decode import stream
from ..models import AnyModel, Embedded, Seq2seq, familiar
from ..pipelines import GenerationConfig, GenerationPipeline
from ..pipelines.base import Ids
from ..runs import Run
from ..runs.digests import SUMS
from ..runs.folder import WEIGHTS
from ..text import Bpe, Byte, Char
from ..train.checkpoint import damage, found
from ..weights.formats import native as own
from . import reading
from .base import Check, Proof, compared
from .statements import looking, over_ids

TEXTS = 12  # that are answered
TOKENS = 24  # of a prompt, and of an answer
WHOLE = "every file is as it was written"
DECODING, BATCH = "decoding with state = recomputing everything", "batch = one by one"


@dataclass(frozen=True)
class Trained:
    """A run to be verified, and its model in float64. Texts to answer are read when they are first needed."""

    run: Run
    model: Mixer[Any]

    @classmethod
    def open(cls, path: str) -> Self:
        run = Run.open(path)
        if run.recipe.task.loads:
            raise RunError(
                f"{path} learnt from files that are no texts, and this verifies runs that read texts; "
                "heed eval measures it, heed verify alone tries the laws on what it is made of"
            )
        return cls(run, run.model().double().eval())

    @cached_property
    def pipeline(self) -> GenerationPipeline:
        found = self.run.recipe.task.pipeline(self.model, self.run.tokenizer)
        if not isinstance(found, GenerationPipeline):
            raise RunError(f"{self.run.path} generates nothing: it is {found.what}")
        return found

    @cached_property
    def generates(self) -> bool:
        return isinstance(self.run.recipe.task.pipeline(self.model, self.run.tokenizer), GenerationPipeline)

    @cached_property
    def rows(self) -> list[Ids]:
        """The texts as they are read: ids with their segments, each of another length. [T, 2]"""
        framed = self.run.tokenizer.framed_all(self.texts)
        return [np.array([one.ids, one.segments], np.int32).T[: TOKENS - place] for place, one in enumerate(framed)]

    @cached_property
    def texts(self) -> list[str]:
        """The beginnings of some examples; if the data is not at hand any more, of texts made of random tokens."""
        try:
            texts = self._examples()
        except (HeedError, OSError):
            texts = self.run.tokenizer.decode_all(self.ids(TEXTS, TOKENS // 2).tolist())
        return [self._short(text) for text in texts]

    @property
    def limit(self) -> int:
        """Tokens of an answer: no more than the model was trained on, the prompt included."""
        return max(
            1, min(TOKENS, self.pipeline.default_length([self.pipeline.prompt(text) for text in self.texts]) // 2)
        )

    def ids(self, rows: int, length: int) -> Tensor:
        """Random tokens of the vocabulary."""
        return torch.randint(self.run.tokenizer.size, (rows, length), generator=torch.Generator().manual_seed(0))

    def given(self, rows: int, length: int) -> Given:
        """What stands beside the tokens: for an encoder-decoder a source, encoded."""
        if not isinstance(self.model, Seq2seq):
            return NOTHING
        with torch.no_grad():
            return Given(encoder_output=self.model.encode(self.ids(rows, length).flip(0), Where.run(rows, length)))

    def _examples(self) -> list[str]:
        recipe = self.run.recipe
        names = sorted(recipe.data.splits(), key=("valid", "test", "train").index)
        examples = recipe.data.split(names[0], recipe.task.columns)
        return [recipe.task.texts(example)[0] for example in islice(examples, TEXTS)]

    def _short(self, text: str) -> str:
        if not self.generates:
            return text
        most = max(1, min(TOKENS, self.pipeline.default_length([self.pipeline.prompt(text)]) // 2))
        while len(self.run.tokenizer.encode(text)) > most:
            text = text[: len(text) // 2]
        return text


def checks(path: str) -> Iterator[Check]:
    """Every statement about a run folder. If damage keeps its model from being read, that is a finding of each."""
    try:
        trained = Trained.open(path)
    except HeedError as error:
        run = Run.open(path)
        if not _damage(run):
            raise
        unread = Finding(WHOLE, float("inf"), 0.0, f"not tried: {error}")
        yield compared(path, WHOLE, lambda: _files(run))
        for statement in [*STATEMENTS][1:]:
            yield compared(path, statement, lambda: [unread])
        return
    for statement, measure in (STATEMENTS if trained.generates else READING).items():
        why = _left_out(trained, statement)
        yield (
            compared(path, statement, partial(measure, trained))
            if why is None
            else partial(Proof.beside, path, statement, why)
        )


def _left_out(trained: Trained, statement: str) -> str | None:
    """Why a statement is not about this run."""
    if statement == DECODING and not trained.generates:
        return "since this run generates nothing"
    if statement in LAW_NAMES and not isinstance(trained.model, AnyModel):
        return f"since the laws know encoder, decoder and encoder-decoder, not {type(trained.model).__name__}"
    return None


def _obeys(law: Law) -> Callable[[Trained], list[Finding]]:
    return lambda trained: [law(Embedded(trained.model), familiar(trained.model))]  # type: ignore[arg-type]


def _looking(trained: Trained) -> list[Finding]:
    where = Where.run(2, 7).beside(trained.given(2, 4))
    return [looking(trained.model, trained.ids(2, 7), where)]


def _over_ids(trained: Trained) -> list[Finding]:
    return [over_ids(trained.model, trained.ids(2, length), trained.given(2, 5)) for length in (4, 7)]


def _decoding(trained: Trained) -> list[Finding]:
    return [_decoded(trained, text) for text in trained.texts]


def _decoded(trained: Trained, text: str) -> Finding:
    """A greedy answer, written token by token, against one call with all of it: each token has the largest logit there.

    Both log-probabilities are compared, and the generated token's with the largest: a tie may be broken either way.
    """
    pipeline = trained.pipeline
    prompt, given = pipeline.prompt(text), pipeline.given([text])
    end = pipeline.tokenizer.need("end")
    generated = list(stream(trained.model, [prompt], max_new_tokens=trained.limit, end=end, given=given))
    tokens = [token.token for token in generated]
    every = torch.tensor([[*prompt, *tokens[:-1]]])
    with torch.no_grad():
        logits, _ = trained.model(every, Where.run(*every.shape).beside(given))
    known = logits[0, len(prompt) - 1 :].log_softmax(-1)
    chosen = known.gather(1, torch.tensor(tokens)[:, None])[:, 0]
    told = torch.tensor([token.logprob for token in generated], dtype=known.dtype)
    error = max(distance(chosen, told), distance(known.amax(1), chosen))
    return Finding("decoding", error, BOUND, f"{len(tokens)} tokens after {text!r}")


def _batched(trained: Trained) -> list[Finding]:
    """Texts answered together, against each alone: the same words with the same probability."""
    pipeline, texts = trained.pipeline, trained.texts
    ask = GenerationConfig(strategy=pipeline.strategy, max_new_tokens=trained.limit).seeded(0)
    together = pipeline.completions(texts, ask)
    found = []
    for number, (text, batch) in enumerate(zip(texts, together, strict=True)):
        (alone,) = pipeline.completions([text], ask, first=number)
        if [answer.text for answer in batch] == [answer.text for answer in alone]:
            scores = (torch.tensor([a.score for a in answers], dtype=torch.float64) for answers in (alone, batch))
            found.append(Finding("batch", distance(*scores), BOUND, f"{batch[0].text!r} to {text!r}"))
        else:
            words = f"{text!r} is answered {batch[0].text!r} in a batch, {alone[0].text!r} alone"
            found.append(Finding("batch", float("inf"), BOUND, words))
    return found


def _saved(trained: Trained) -> list[Finding]:
    """The weights written and read again: every bit is the same, and what is tied in the model is still tied."""
    run = trained.run
    model = run.model()
    with TemporaryDirectory() as folder:
        own.write(model, Path(folder) / WEIGHTS)
        again = own.read(run.build, Path(folder))
    with torch.device("meta"):
        tied = _ties(run.build())
    held = again.state_dict()
    other = [name for name, tensor in model.state_dict().items() if not torch.equal(tensor, held[name])]
    if _ties(again) != tied or _ties(model) != tied:
        return [Finding("saved", 1.0, 0.0, "weights that are one in the model are several when it is read")]
    words = f"{', '.join(other)} came back different" if other else f"{len(held)} tensors, tied: {len(tied)}"
    return [Finding("saved", float(len(other)), 0.0, words)]


def _ties(model: nn.Module) -> set[frozenset[str]]:
    """The names that share their weights."""
    names: dict[int, set[str]] = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(weight), set()).add(name)
    return {frozenset(same) for same in names.values() if len(same) > 1}


def _round_trip(trained: Trained) -> list[Finding]:
    """Texts to ids and back. Words and tokenizers of other libraries promise less, and unknown characters are lost."""
    config, tokenizer = trained.run.recipe.tokenizer, trained.run.tokenizer
    if not isinstance(config, Byte | Char | Bpe) or config.lowercase:
        return [Finding("round trip", 0.0, 0.0, "this tokenizer does not promise that texts come back as they were")]
    found = []
    for text in trained.texts:
        ids = tokenizer.encode(text)
        back, wanted = tokenizer.decode(ids), unicodedata.normalize("NFC", text)
        if tokenizer.unknown in ids:
            found.append(Finding("round trip", 0.0, 0.0, f"{text!r} holds characters that it does not know"))
        else:
            found.append(Finding("round trip", float(back != wanted), 0.0, f"{text!r} comes back as {back!r}"))
    return found


def _whole(trained: Trained) -> list[Finding]:
    return _files(trained.run)


def _files(run: Run) -> list[Finding]:
    """Every file that has a digest, those of the checkpoints included, is compared with it."""
    wrong = _damage(run)
    told = wrong or ([] if run.has_digests else [f"there is no {SUMS} to compare with"])
    return [Finding("files", float(len(wrong)), 0.0, "; ".join(told))]


def _damage(run: Run) -> list[str]:
    """What is damaged; a list of digests may be so itself."""
    looks: tuple[Callable[[], list[str]], ...] = (lambda: list(run.damage().values()),)
    looks = (*looks, *(partial(damage, place) for place in found(run)))
    wrong: list[str] = []
    for look in looks:
        try:
            wrong += look()
        except (RunError, OSError) as error:
            wrong.append(str(error))
    return wrong


STATEMENTS: dict[str, Callable[[Trained], list[Finding]]] = {
    WHOLE: _whole,
    **{law.__name__: _obeys(law) for law in LAWS},
    "looking changes nothing": _looking,
    "whole = cut = padded, over token ids": _over_ids,
    DECODING: _decoding,
    BATCH: _batched,
    "saved = loaded": _saved,
    "tokenizer round trip": _round_trip,
}
LAW_NAMES = frozenset(law.__name__ for law in LAWS)
# Of a run that generates nothing.
READING: dict[str, Callable[[Trained], list[Finding]]] = {
    **STATEMENTS,
    BATCH: lambda trained: reading.batched(trained.model, trained.rows),
    "padding does not matter": lambda trained: reading.padded(trained.model, trained.rows),
    "compiled = plain": lambda trained: reading.compiled(trained.run.model().eval(), trained.rows),
}
