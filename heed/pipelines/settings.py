"""How texts are generated: the keywords that every generating verb takes, and the configuration they become."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self, TypedDict

from pydantic import model_validator

from ..core.config import Config, Flag, Size, Text, renamed_keys
from ..core.errors import ConfigError, InputError
from ..core.foreign_names import refuse_unknown
from ..decode import AnyStrategy, Beam, Greedy, Sample

DRAWING = ("temperature", "top_k", "top_p", "min_p")  # keywords of sampling
SEARCHING = ("num_beams", "length_penalty")  # and of a beam search


class OneTextKeywords(TypedDict, total=False):
    """Keywords of every verb that generates, one text for each prompt."""

    max_new_tokens: int  # at most so many tokens are generated
    temperature: float  # logits are divided by it before a draw; 0 is greedy
    top_p: float  # draw from the most probable tokens that together have this probability
    top_k: int  # draw from the k most probable tokens
    min_p: float  # draw from tokens at least this share as probable as the most probable
    repetition: float  # above 1: avoid tokens that were there already
    repetition_penalty: float  # the same, as others call it
    do_sample: bool  # True draws, False takes the most probable token; the keywords above say it already
    num_beams: int  # beam search
    length_penalty: float  # of a beam search: log p / length**length_penalty
    stop: str | Sequence[str]  # a text ends before the first of these
    prefix: str  # every text begins so
    seed: int  # of the draws; another one in every call if none is given
    logprobs: bool  # completions tell the log-probability of each token


class GenerationKeywords(OneTextKeywords, total=False):
    """Keywords of `generate`, `stream`, `chat`, `translate` and `completions`."""

    num_return_sequences: int  # so many texts for each prompt: draws, or the best of a beam search


class GenerationConfig(Config):
    """How texts are generated."""

    strategy: AnyStrategy = Greedy()  # how the next token is chosen
    max_new_tokens: Size | None = None  # None: what the pipeline finds enough
    stop: tuple[Text, ...] = ()  # a completion ends before the first of these
    prefix: Text = ""  # every completion begins so
    num_return_sequences: Size | None = None  # per prompt; None: one, or the `best` of a beam search
    logprobs: Flag = False  # completions tell the log-probability of each token
    _old = renamed_keys(how="strategy", limit="max_new_tokens")

    @model_validator(mode="after")
    def _as_many(self) -> Self:
        count = self.num_return_sequences or 1
        if isinstance(self.strategy, Greedy) and count > 1:
            raise ValueError(
                f"greedy decoding gives one text, not {count} (num_return_sequences); sample with temperature=1.0, or "
                f"search with num_beams={count}"
            )
        if isinstance(self.strategy, Beam) and count > self.strategy.beams:
            raise ValueError(
                f"{self.strategy.beams} beams (num_beams) cannot give the {count} best (num_return_sequences)"
            )
        return self

    @property
    def draws(self) -> int:
        """How often a prompt is sampled; a search finds all its texts at once."""
        return (self.num_return_sequences or 1) if isinstance(self.strategy, Sample) else 1

    @property
    def seed(self) -> int | None:
        """The seed of the first draw; None if nothing is drawn, or if each call has its own."""
        return self.strategy.seed if isinstance(self.strategy, Sample) else None

    def seeded(self, seed: int | None = None) -> Self:
        """The same with a seed, if anything is drawn: its own if it has one, else this one, else a fresh one."""
        if not isinstance(self.strategy, Sample):
            return self
        return self.model_copy(update={"strategy": self.strategy.seeded(seed)})

    def given(self, verb: str, keywords: Mapping[str, Any]) -> Self:
        """The same, with these keywords of `verb` instead."""
        if not keywords:
            return self
        refuse_unknown(verb, keywords, GenerationKeywords.__annotations__)
        told = {name: value for name, value in keywords.items() if value is not None}
        if "repetition_penalty" in told:
            told.setdefault("repetition", told.pop("repetition_penalty"))
        own = ("max_new_tokens", "prefix", "num_return_sequences", "logprobs")
        changed = {name: told[name] for name in own if name in told}
        if "stop" in told:
            changed["stop"] = _texts(told["stop"])
        try:
            return type(self).load({**self._plain(), **changed, "strategy": _strategy(self.strategy, told)})
        except ConfigError as error:
            raise InputError(f"{verb}: {'; '.join(map(_in_keywords, error.problems))}") from None

    @property
    def whole_strategy(self) -> AnyStrategy:
        """The strategy, told how many texts it gives for each prompt."""
        if isinstance(self.strategy, Beam) and self.num_return_sequences is not None:
            return self.strategy.model_copy(update={"best": self.num_return_sequences})
        return self.strategy

    def _plain(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in type(self).model_fields}


def _strategy(usual: AnyStrategy, told: Mapping[str, Any]) -> dict[str, Any]:
    """The usual strategy, as plain data, with what was told instead."""
    drawing = {name: told[name] for name in DRAWING if name in told}
    renamed = {"num_beams": "beams", "length_penalty": "length_penalty"}
    searching = {renamed[name]: told[name] for name in SEARCHING if name in told}
    if searching.get("beams") == 1:  # one beam is no search
        searching = {}
    kind = _kind(usual, told, drawing=bool(drawing), searching=bool(searching))
    _must_agree(kind, told, drawing)
    if drawing.get("temperature") == 0:
        drawing = {}
    penalty = {name: told[name] for name in ("repetition",) if name in told}
    best = {"best": told["num_return_sequences"]} if "num_return_sequences" in told else {}
    seed = {"seed": told["seed"]} if "seed" in told else {}
    more = {"beam": {**searching, **best}, "sample": {**drawing, **seed, **penalty}, "greedy": penalty}
    return {**(usual.dump() if usual.dump()["kind"] == kind else {}), "kind": kind, **more[kind]}


def _kind(usual: AnyStrategy, told: Mapping[str, Any], *, drawing: bool, searching: bool) -> str:
    if searching:
        return "beam"
    if told.get("temperature") == 0:  # the limit of ever surer draws: the most probable token
        return "greedy"
    if drawing or told.get("do_sample") is True:
        return "sample"
    if told.get("do_sample") is False and isinstance(usual, Sample):
        return "greedy"
    if told.get("num_beams") == 1 and isinstance(usual, Beam):
        return "greedy"
    return str(usual.dump()["kind"])


def _must_agree(kind: str, told: Mapping[str, Any], drawing: Iterable[str]) -> None:
    """Raise if keywords contradict one another."""
    drawn = [name for name in drawing if name != "temperature" or told[name] != 0]
    if kind == "beam" and (drawn or told.get("do_sample") is True):
        raise InputError(
            f"a beam search does not sample: {', '.join(drawn) or 'do_sample'} cannot go with it; leave out one or the "
            "other"
        )
    if kind == "beam" and "repetition" in told:
        raise InputError("a beam search takes no repetition penalty; add temperature=0 for greedy decoding")
    if told.get("do_sample") is False and drawn:
        raise InputError(f"do_sample=False draws nothing, and {', '.join(drawn)} says how to draw; leave out one")
    if told.get("do_sample") is True and told.get("temperature") == 0:
        raise InputError("temperature=0 is greedy, and do_sample=True draws; leave out one")


def _in_keywords(problem: str) -> str:
    """A problem of a configuration, in the words of the keywords it was made of."""
    for ours, word in {"beams is": "num_beams is", "best is": "num_return_sequences is"}.items():
        problem = problem.replace(f"strategy.{ours}", word)
    return problem.removeprefix("GenerationConfig: ").removeprefix("strategy: ").removeprefix("strategy.")


def _texts(stop: Any) -> tuple[Any, ...]:
    if isinstance(stop, str):
        return (stop,)
    if isinstance(stop, Iterable):
        return tuple(stop)
    raise InputError(f"stop must be a text or a list of texts, not {type(stop).__name__}")
