"""What is asked of the engine: a prompt, how it is continued, and for whom."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import TypeAlias

from ..core.errors import InputError
from ..decode import SamplingConfig
from ..decode.constraints import Next
from ..decode.loop import GREEDY

MOST_STOPS, LONGEST_STOP = 16, 256  # stop strings of a request, and characters of one
MOST_LOGPROBS = 100  # top log-probabilities of a token

# Which tokens may come after those written so far; None: all. It is asked once for every token, in order, and may
# remember.
Allow: TypeAlias = "Callable[[tuple[int, ...]], Next]"


@dataclass(frozen=True, kw_only=True)
class Request:
    """One prompt to be continued once. For n answers submit n requests, whose seeds differ."""

    prompt: str | Sequence[int]  # a text, framed as the model's pipeline frames it; or ids, taken as they are
    model: str | None = None  # its name; None: the only one there is
    source: str | Sequence[int] | None = None  # what an encoder-decoder encodes; `prompt` may then be () = as usual
    max_new_tokens: int | None = None  # the end token counted; None: what the pipeline finds enough; 0: read only
    sampling: SamplingConfig = GREEDY  # heed.decode.Greedy or Sample, with its seed
    ends: Collection[int] | None = None  # tokens that end the answer; None: the model's own; () = ignore_eos
    stop: Sequence[str] = ()  # the answer ends before the first of these texts
    logit_bias: Mapping[int, float] = field(default_factory=dict)  # added to logits, before all that sampling does
    frequency_penalty: float = 0.0  # taken off a logit for each time that its token was written
    presence_penalty: float = 0.0  # taken off once, if it was written at all; below 0 they make it more probable
    allow: Allow | None = None  # a constraint
    logprobs: int | None = None  # so many top log-probabilities beside the token's own; 0: its own only; None: none
    prompt_logprobs: int | None = None  # the same for the tokens of the prompt (read in more memory, past any prefix)
    owner: str = ""  # requests of one owner wait for one another, and share prefixes with no other owner
    deadline: float | None = None  # seconds from now after which it is ended, waiting or not

    def __post_init__(self) -> None:
        for name, least in (("max_new_tokens", 0), ("logprobs", 0), ("prompt_logprobs", 0)):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < least):
                raise InputError(f"{name} is {value!r}; needed is a whole number, {least} or more")
        for name in ("logprobs", "prompt_logprobs"):
            if (getattr(self, name) or 0) > MOST_LOGPROBS:
                raise InputError(f"{name} is {getattr(self, name)}; at most {MOST_LOGPROBS} are told")
        for name in ("frequency_penalty", "presence_penalty"):
            if not isfinite(getattr(self, name)):
                raise InputError(f"{name} is {getattr(self, name)}; needed is a number")
        if self.deadline is not None and not (isfinite(self.deadline) and self.deadline > 0):
            raise InputError(f"deadline is {self.deadline}; needed is a number of seconds from now, above 0")
        if isinstance(self.stop, str) or len(self.stop) > MOST_STOPS or not all(map(_fits, self.stop)):
            raise InputError(
                f"stop is a list of at most {MOST_STOPS} texts of 1 to {LONGEST_STOP} characters, not "
                f"{str(self.stop)[:80]!r}"
            )
        strange = [bias for bias in self.logit_bias.values() if not isfinite(bias)]
        if strange:
            raise InputError(f"logit_bias holds {strange[0]}; needed are numbers; forbid tokens by `allow`")


def _fits(stop: object) -> bool:
    return isinstance(stop, str) and 0 < len(stop) <= LONGEST_STOP
