"""What can go wrong, as one tree. Every message says what was given, what is needed and what to do.

HeedError
├── ConfigError            a configuration that cannot be: unknown key, wrong type, impossible number
├── InputError             a tensor, token or file that does not fit the call it was given to
├── StateError             a state used against the contract
│   ├── StateConsumed      a state used a second time without `fork`
│   └── CannotStream       a state given to a mixer that needs the whole sequence at once
├── WeightsError           a checkpoint that misses tensors, has unknown ones, or is not safe to open
├── RunError               a run folder that cannot be read, written or continued
└── MissingExtra           an optional dependency that is not installed

LayoutWarning              heads and tokens look swapped: [B, H, T, d] given for [B, T, H, d]
"""

from __future__ import annotations


def counted(number: int, thing: str) -> str:
    """For messages: `1 row`, `2,000 rows`, `3 classes`."""
    several = "es" if thing.endswith("s") else "s"
    return f"{number:,} {thing}{'' if number == 1 else several}"


class HeedError(Exception):
    """The root: `except HeedError` catches whatever heed raises on purpose."""


class ConfigError(HeedError, ValueError):
    """A configuration that cannot be. `problems` lists all of them, not just the first."""

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        head = "" if len(problems) == 1 else f"{len(problems)} problems:\n  - "
        super().__init__(head + "\n  - ".join(problems))


class InputError(HeedError, ValueError):
    """A tensor, token or file that does not fit the call it was given to."""


class StateError(HeedError, RuntimeError):
    """A state used against the contract."""


class StateConsumed(StateError):
    """A state is a value that is used up: the call it was passed to may have written into its storage."""

    TEXT = """this state was already passed to a call, which may have written into its storage.
  wrong:  y1, _ = mixer(x1, where, state)
          y2, _ = mixer(x2, where, state)          # the same state again
  right:  y1, state = mixer(x1, where, state)      # carry on with what came back
          y2, state = mixer(x2, later, state)
  or:     y1, _ = mixer(x1, where, fork(state))    # keep it to try something else
          y2, _ = mixer(x2, where, state)"""

    def __init__(self, text: str = TEXT) -> None:
        super().__init__(text)


class CannotStream(StateError):
    """A state given to a mixer that needs the whole sequence at once."""

    @classmethod
    def because(cls, name: str, ahead: int | None) -> CannotStream:
        """It looks so far ahead."""
        far = "any number of" if ahead is None else str(ahead)
        return cls(
            f"{name} looks {far} tokens ahead, so it cannot continue from a state; "
            "call it once with the whole sequence and state=None, or give it a mask that looks back only"
        )


class WeightsError(HeedError, ValueError):
    """A checkpoint that misses tensors, has unknown ones, or is not safe to open."""


class RunError(HeedError, OSError):
    """A run folder that cannot be read, written or continued."""


class MissingExtra(HeedError, ImportError):
    """An optional dependency that is not installed."""

    @classmethod
    def of(cls, package: str, extra: str) -> MissingExtra:
        """The package, and the extra that brings it."""
        return cls(f'{package} is not installed; run: pip install "heed-attention[{extra}]"')


class LayoutWarning(UserWarning):
    """Heads and tokens look swapped. Naming the layout ends it, whichever it is."""
