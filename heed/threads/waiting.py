"""How OpenMP's threads wait: they spin briefly, then sleep. The runtime reads this when it is loaded, with torch.

libgomp spins for milliseconds by default, which is long enough to take a core from the thread that is waited for, at
every one of a thousand places in a training step. A short spin bridges what lies between two operators of torch and
ends before it does harm. Nothing is set if the user has set anything, and processes started from here inherit it,
which is right: they share the machine.

`import heed` imports this file: nothing but the standard library, and little of that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping
from warnings import warn

POLICY = {  # runtime of GNU, spins of some 15 ns; runtimes of Intel and LLVM, milliseconds
    "GOMP_SPINCOUNT": "10000",
    "KMP_BLOCKTIME": "1",
}
THEIRS = ("OMP_WAIT_POLICY", *POLICY)  # whoever sets one of these has decided

LATE = (
    "torch was imported before heed, so its threads spin for milliseconds while they wait: other work on this machine "
    f"slows them down; import heed first, or set GOMP_SPINCOUNT={POLICY['GOMP_SPINCOUNT']} before Python starts"
)


class Waiting:
    """Whose waiting policy is in force, and whether it was said that there is none."""

    def __init__(self) -> None:
        self.late = False  # torch was there first: its threads wait as they like
        self.theirs = False  # the user has decided
        self._told = False

    def begin(self, environment: MutableMapping[str, str], loaded: bool) -> None:
        """Set the policy where the user has not; `loaded`: torch is there already, so that nothing reaches it."""
        found = {name: environment[name] for name in THEIRS if name in environment}
        self.theirs = not found.items() <= POLICY.items()  # else it is inherited from a process that imported heed
        self.late = loaded and not found
        if not found and not loaded:
            environment.update(POLICY)

    def advise(self, threads: int) -> None:
        """Before long work on so many threads: say once what would make it quicker."""
        if self.late and threads > 1 and not self._told:
            self._told = True
            warn(LATE, stacklevel=2)


WAITING = Waiting()


def wait_briefly() -> None:
    """Called by `import heed`."""
    WAITING.begin(os.environ, "torch" in sys.modules)
