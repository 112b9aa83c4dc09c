"""Whole models over token ids: labels, losses, tied weights, caches and padding."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..foreign.calls import default_type
from ..foreign.returned import numbers, tensors
from ..foreign.said import rows_first
from ..foreign.signature import Signature
from ..foreign.sizes import cut, listed
from ..foreign.target import CannotCheck
from ..foreign.words import Role
from ..outcome import Clue, Outcome, Sure
from ..reference import distance, only_down
from ..signs import of_length
from ..trouble import Fault, Trouble
from .beside import Made, combinations

ROWS, TOKENS = 3, 9
CLOSE = 1e-5  # losses, relative: some hundred roundings of float32, in which models are run here
SAME = 1e-4  # scores of two ways to the same result: some thousand roundings of float32, through all layers
IGNORED = -100
WRITTEN = listed("tgt trg target dec decoder")


class NoModel(CannotCheck):
    """What takes no ids, whatever its arguments are called."""


@dataclass
class Scorer:
    """A model that gives scores for ids, however it is called."""

    model: nn.Module
    vocabulary: int
    turned: bool = False  # whether ids are given as [tokens, rows]
    beside: Mapping[str, Made] = field(default_factory=dict)  # what must be given beside the ids

    @cached_property
    def signature(self) -> Signature:
        return Signature.of(self.model)

    @property
    def two_sided(self) -> bool:
        """Whether it reads a source and writes beside it."""
        return "decoder_input_ids" in self.signature.roles

    @property
    def reads(self) -> bool:
        """The same, however its arguments are called."""
        return self.two_sided or self.written is not None

    @property
    def ids_name(self) -> str:
        if self.two_sided:
            return "decoder_input_ids"
        name = self.written or self.signature.named(Role.IDS) or self.signature.named(Role.INPUT)
        if name is None:
            raise CannotCheck(f"{type(self.model).__name__}.forward takes no token ids")
        return name

    @property
    def written(self) -> str | None:
        """What is written beside a source, by its name; None if only one text is taken."""
        names = self.signature
        taken = [n for n in names.all(Role.IDS, Role.INPUT, Role.SOURCE) if n in names.needed]
        return next((name for name in taken[1:] if set(cut(name)) & WRITTEN), None)

    def ids(self, seed: int = 0, rows: int = ROWS, tokens: int = TOKENS) -> Tensor:
        draw = torch.Generator().manual_seed(seed)
        return torch.randint(3, self.vocabulary, (rows, tokens), generator=draw)

    def returned(self, ids: Tensor, **given: Any) -> Any:
        read = {"input_ids": self.ids(99, rows=1).expand(len(ids), -1)} if self.two_sided else {}
        with torch.no_grad(), default_type(torch.float32):
            beside = {name: make(ids) for name, make in self.beside.items()}
            told = {**beside, self.ids_name: ids, **given}
            laid = {n: v.mT if self.turned and isinstance(v, Tensor) and v.dim() == 2 else v for n, v in told.items()}
            return self.model(**{**read, **laid})

    def scores(self, ids: Tensor, **given: Any) -> Tensor:
        """[B, T, V]"""
        made = [t for t in tensors(self.returned(ids, **given)) if t.dim() == 3]
        found = [
            t for t in (part.transpose(0, 1) if self.turned else part for part in made) if t.shape[:2] == ids.shape
        ]
        wide = [t for t in found if t.shape[2] >= self.vocabulary] or found
        if not wide:
            raise CannotCheck(f"{type(self.model).__name__} gives no scores for every token")
        return wide[0]

    def loss(self, ids: Tensor, labels: Tensor) -> Tensor | None:
        """The loss it computes itself; None if it does not."""
        name = self.signature.named(Role.LABELS)
        if name is None:
            return None
        numbers = [t for t in tensors(self.returned(ids, **{name: labels})) if t.dim() == 0]
        return numbers[0].double() if numbers else None

    def scores_with(self, ids: Tensor, labels: Tensor) -> Tensor:
        name = self.signature.named(Role.LABELS)
        try:
            return self.scores(ids, **({name: labels} if name else {}))
        except CannotCheck:
            return self.scores(ids)

    @cached_property
    def causal(self) -> bool:
        """Whether what comes later changes nothing."""
        ids = self.ids()
        other = ids.clone()
        other[:, -1] = (other[:, -1] - 2) % (self.vocabulary - 3) + 3
        return distance(self.scores(other)[:, :-1], self.scores(ids)[:, :-1]) <= SAME


def asked(model: Any, name: str) -> list[Outcome]:
    """Everything that a model is asked."""
    module = copy.deepcopy(model).float().eval()
    scorer = called(Scorer(module, vocabulary(module)))
    first = layout(scorer) if not scorer.turned else _tokens_first(scorer)
    if first is not None:
        scorer = replace(scorer, turned=True)
    outcomes = [first] if first is not None else []
    for ask in (prefix, rows, repeat, labels, denominator, tying, cache, left_padding):
        probe = ask.__name__.replace("_", "-")
        try:
            outcomes.append(ask(scorer, name))
        except CannotCheck:
            raise
        except Exception as error:  # foreign code may raise anything
            trouble = Trouble.of(error)
            if trouble.fault is not Fault.TARGET:
                outcomes.append(trouble.outcome(probe))
                continue
            words = f"raised {type(error).__name__}: {str(error)[:300]}"
            outcomes.append(Outcome.broken(probe, words, Clue("raises", Sure.HINT, f"{probe}: {words}")))
    return outcomes


def called(scorer: Scorer) -> Scorer:
    """The same with all that it must be given beside the ids: a model that cannot be called is not accused of that."""
    names = scorer.signature
    open_ = {n: names.roles[n] for n in names.roles if n in names.needed and n not in (scorer.ids_name, "input_ids")}
    problem: Exception | None = None
    blank: Scorer | None = None  # of which no number comes out: a mask may hide everything
    for turned in (False, True) if open_ else (False,):  # a source must have as many rows, wherever these stand
        for beside in combinations(scorer.model, open_, scorer.vocabulary):
            filled = replace(scorer, beside=beside, turned=turned)
            try:
                made = filled.returned(filled.ids())
            except Exception as error:  # foreign code may raise anything
                problem = problem or error
                continue
            if all(bool(torch.isfinite(part).all()) for part in numbers(made)):
                return filled
            blank = blank or filled
    if blank is not None:
        return blank
    words = f"{type(problem).__name__}: {str(problem)[:300]}"
    raise CannotCheck(f"{type(scorer.model).__name__}({', '.join(names.roles)}) could not be called with ids: {words}")


def vocabulary(module: nn.Module) -> int:
    """How many tokens there are: the rows of the embedding that is given the ids; else that an output layer matches."""
    tables = [m.num_embeddings for m in module.modules() if isinstance(m, nn.Embedding)]
    if not tables:
        raise NoModel(f"{type(module).__name__} has no embedding, so it is no model over token ids")
    asked = _asked_first(module)
    if asked is not None:
        return asked
    heads = {m.out_features for m in module.modules() if isinstance(m, nn.Linear)}
    return next((rows for rows in tables if rows in heads), tables[0])


def _asked_first(module: nn.Module) -> int | None:
    """The rows of the embedding that is given the ids themselves; None if none is, or the call does not get there."""
    ids = torch.ones(2, TOKENS, dtype=torch.long)
    ids[0, 0] = 0
    given: list[nn.Embedding] = []

    def noted(table: nn.Module, inputs: tuple[Any, ...]) -> None:
        first = inputs[0] if inputs else None
        if isinstance(table, nn.Embedding) and isinstance(first, Tensor) and first.shape == ids.shape:
            given.extend([table] if torch.equal(first, ids) else [])

    hooks = [m.register_forward_pre_hook(noted) for m in module.modules() if isinstance(m, nn.Embedding)]
    try:
        Scorer(module, 2).returned(ids)
    except Exception:  # what it wants beside the ids is found out later
        pass
    finally:
        for hook in hooks:
            hook.remove()
    return given[0].num_embeddings if given else None


def layout(scorer: Scorer) -> Outcome | None:
    """A token that changes the same token of other rows, and no other of its own: rows and tokens are exchanged."""
    ids = scorer.ids()
    other = ids.clone()
    other[0, 0] = (other[0, 0] - 2) % (scorer.vocabulary - 3) + 3
    try:
        gap = (scorer.scores(other) - scorer.scores(ids)).abs().amax(-1)
    except Exception:  # whatever it is, the next question runs into it, too
        return None
    moved = gap > SAME * float(gap.max())
    return _tokens_first(scorer) if only_down(moved) else None


def _tokens_first(scorer: Scorer) -> Outcome:
    words = "it takes [tokens, rows]: tokens stand first"
    if (told := rows_first(scorer.model)) is None:
        return Outcome.held("layout", words, 0.0, 0.0, Clue("batch-first-confusion", Sure.CONVENTION, words))
    words = f"replacing one token moves the same token of other rows, and no other, though its source says {told}"
    return Outcome.broken("layout", words, Clue("batch-first-confusion", Sure.LIKELY, words))


def prefix(scorer: Scorer, name: str) -> Outcome:
    """The scores of a text's beginning are those of the beginning alone."""
    if not scorer.causal:
        if "causallm" in name.lower() or name.lower().startswith("gpt"):
            told = "scores of earlier tokens change when the last token is replaced"
            return Outcome.broken("prefix", told, Clue("future-leak", Sure.LIKELY, told))
        return Outcome.moot("prefix", "it looks both ways")
    whole = scorer.scores(ids := scorer.ids())
    for t in range(1, TOKENS):
        gap = distance(scorer.scores(ids[:, :t]), whole[:, :t])
        if gap > SAME:
            told = f"the first {t} tokens are scored otherwise alone than before {TOKENS - t} more ({gap:.1e})"
            clue = of_length(told, scorer.model, lambda n: scorer.scores(ids[:, :n]), (TOKENS, t))
            return Outcome.broken("prefix", clue.evidence, clue, error=gap)
    return Outcome.held("prefix", f"equal for every t < {TOKENS}")


def rows(scorer: Scorer, name: str) -> Outcome:
    """Rows do not touch each other."""
    ids = scorer.ids()
    gap = max(distance(scorer.scores(ids[r : r + 1]), scorer.scores(ids)[r : r + 1]) for r in range(ROWS))
    if gap > SAME:
        told = f"a row is scored otherwise among others than alone ({gap:.1e})"
        return Outcome.broken("rows", told, Clue("batch-mixing", Sure.LIKELY, told), error=gap)
    return Outcome.held("rows", "rows are independent", gap)


def repeat(scorer: Scorer, name: str) -> Outcome:
    """The same ids give the same scores while not training."""
    ids = scorer.ids()
    gap = distance(scorer.scores(ids), scorer.scores(ids))
    if gap > 0:
        told = f"two calls with the same ids differ by {gap:.1e} in eval mode"
        return Outcome.broken("repeat", told, Clue("dropout-in-eval", Sure.LIKELY, told), error=gap)
    return Outcome.held("repeat", "the same ids give the same scores")


def _entropy(scores: Tensor, wanted: Tensor) -> float:
    return float(F.cross_entropy(scores.double().flatten(0, 1), wanted.flatten(), ignore_index=IGNORED))


def labels(scorer: Scorer, name: str) -> Outcome:
    """Labels that are the ids themselves: the scores of a token are compared with the next one, once."""
    ids = scorer.ids()
    loss = scorer.loss(ids, ids)
    if loss is None:
        return Outcome.moot("labels", "it computes no loss")
    scores, argument = scorer.scores_with(ids, ids), scorer.signature.named(Role.LABELS) or ""
    ways = {
        "shifted once": _entropy(scores[:, :-1], ids[:, 1:]),
        "not shifted": _entropy(scores, ids),
        "shifted twice": _entropy(scores[:, :-2], ids[:, 2:]),
        "shifted the wrong way": _entropy(scores[:, 1:], ids[:, :-1]),
    }
    found = next((words for words, value in ways.items() if abs(value - float(loss)) <= CLOSE * max(1.0, value)), None)
    if found is None:
        return Outcome.moot("labels", f"its loss of {float(loss):.4f} is no plain cross-entropy of its scores")
    right = {"shifted once"} if scorer.causal and not scorer.reads and "target" not in argument else {"not shifted"}
    if "target" in argument and found == "shifted once":
        told = "targets are shifted inside; give ids, not the ids that follow"
        return Outcome.held("labels", told, 0.0, 0.0, Clue("label-shift", Sure.CONVENTION, told))
    if found in right:
        return Outcome.held("labels", f"{argument} are {found}, as they should be")
    told = f"{argument} are {found} (loss {float(loss):.4f}); expected: {next(iter(right))}"
    return Outcome.broken("labels", told, Clue("label-shift", Sure.CERTAIN, told))


def denominator(scorer: Scorer, name: str) -> Outcome:
    """With few labels in one row and many in another, the loss is the mean over all labels that count."""
    ids = scorer.ids()
    wanted = ids.clone()
    wanted[0, 3:] = IGNORED
    wanted[1, :6] = IGNORED
    try:
        loss = scorer.loss(ids, wanted)
    except (IndexError, RuntimeError):
        return Outcome.moot("denominator", f"labels of {IGNORED} are not taken")
    if loss is None:
        return Outcome.moot("denominator", "it computes no loss")
    scores = scorer.scores_with(ids, wanted)
    for shift in (1, 0):
        s, w = (scores[:, :-1], wanted[:, 1:]) if shift else (scores, wanted)
        each = F.cross_entropy(s.double().flatten(0, 1), w.flatten(), ignore_index=IGNORED, reduction="none").view(
            w.shape
        )
        counted = w != IGNORED
        right = float(each.sum() / counted.sum())
        if abs(right - float(loss)) <= CLOSE * max(1.0, right):
            return Outcome.held("denominator", "divided by the number of labels that count")
        wrong = {
            "all tokens, padding included": float(each.sum() / w.numel()),
            "the rows, each by its own number of labels": float((each.sum(1) / counted.sum(1).clamp(min=1)).mean()),
            "the number of rows": float(each.sum() / len(w)),
        }
        for words, value in wrong.items():
            if abs(value - float(loss)) <= CLOSE * max(1.0, value):
                told = (
                    f"the loss of {float(loss):.4f} is divided by {words}; by the labels that count it is {right:.4f}"
                )
                return Outcome.broken("denominator", told, Clue("loss-denominator", Sure.CERTAIN, told))
    return Outcome.moot("denominator", "its loss is no plain cross-entropy of its scores")


def tying(scorer: Scorer, name: str) -> Outcome:
    """What is said to be one weight is one, and stays one when it is saved and loaded."""
    pairs = list(_pairs(scorer.model, scorer.vocabulary))
    if not pairs:
        return Outcome.moot("tying", "no output layer has the shape of an embedding")
    said = getattr(getattr(scorer.model, "config", None), "tie_word_embeddings", None)
    for one, other, left, right in pairs:
        tied = left.data_ptr() == right.data_ptr()
        if not tied and (said or torch.equal(left, right)):
            why = "its config says that they are tied" if said else "they hold the same numbers"
            told = f"{one} and {other} are two weights, though {why}"
            return Outcome.broken("tying", told, Clue("tying-lost", Sure.CERTAIN, told))
    tied_now = pairs[0][2].data_ptr() == pairs[0][3].data_ptr()
    return Outcome.held("tying", f"{pairs[0][0]} and {pairs[0][1]} are {'one weight' if tied_now else 'two weights'}")


def _pairs(module: nn.Module, vocabulary: int) -> Iterator[tuple[str, str, Tensor, Tensor]]:
    tables = [(n, m.weight) for n, m in module.named_modules() if isinstance(m, nn.Embedding)]
    heads = [(n, m.weight) for n, m in module.named_modules() if isinstance(m, nn.Linear)]
    for name, table in tables:
        for other, head in heads:
            if head.shape == table.shape and len(table) == vocabulary:
                yield name, other, table, head


def cache(scorer: Scorer, name: str) -> Outcome:
    """Token by token with the cache handed on: the scores of one call."""
    kept, use = scorer.signature.named(Role.CACHE), scorer.signature.named(Role.USE_CACHE)
    if kept is None or not scorer.causal:
        return Outcome.moot("cache", "it keeps no cache" if kept is None else "it looks both ways")
    ids, past, made = scorer.ids(), None, list[Tensor]()
    whole, done = scorer.scores(ids), 0
    for many in (4, 1, 1, 3):
        returned = scorer.returned(ids[:, done : done + many], **{kept: past, **({use: True} if use else {})})
        found = [t for t in tensors(returned) if t.dim() == 3 and t.shape[:2] == (ROWS, many)]
        if not found:
            return Outcome.moot("cache", "it is not handed on in any usual way")
        made.append(found[0])
        past = getattr(returned, "past_key_values", None) if not isinstance(returned, tuple) else returned[-1]
        if past is None:
            return Outcome.moot("cache", "no cache is given back")
        done += many
    gap = distance(torch.cat(made, 1), whole)
    if gap > SAME:
        told = f"{TOKENS} tokens in pieces of 4+1+1+3 are scored otherwise than at once ({gap:.1e})"
        return Outcome.broken("cache", told, Clue("cache-mismatch", Sure.LIKELY, told), error=gap)
    return Outcome.held("cache", "pieces give what the whole gives", gap)


def left_padding(scorer: Scorer, name: str) -> Outcome:
    """Padding on the left, hidden by the mask, with positions counted from the first real token."""
    if scorer.reads:
        return Outcome.moot("left-padding", "it reads a source, too")
    mask, places = scorer.signature.named(Role.MASK), scorer.signature.named(Role.PLACES)
    if mask is None or not scorer.causal:
        return Outcome.moot("left-padding", "it takes no mask" if mask is None else "it looks both ways")
    ids, lacking = scorer.ids(), 2
    padded = torch.cat((torch.zeros(ROWS, lacking, dtype=torch.long), ids), 1)
    real = torch.cat((torch.zeros(ROWS, lacking, dtype=torch.long), torch.ones_like(ids)), 1)
    given: dict[str, Any] = {mask: real}
    if places is not None:
        given[places] = (real.cumsum(1) - 1).clamp(min=0)
    try:
        padded_scores = scorer.scores(padded, **given)
    except RuntimeError:  # a mask of switches, not of numbers
        padded_scores = scorer.scores(padded, **{**given, mask: real.bool()})
    gap = distance(padded_scores[:, lacking:], scorer.scores(ids))
    if gap > SAME:
        told = f"{lacking} tokens of padding on the left change the scores by {gap:.1e}"
        return Outcome.broken("left-padding", told, Clue("padding-leak", Sure.LIKELY, told), error=gap)
    return Outcome.held("left-padding", "padding on the left changes nothing", gap)
