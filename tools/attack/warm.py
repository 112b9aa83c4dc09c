"""All that cases need, imported and used once, so that a fork of this process begins its case at once.

Nothing here may start threads: a fork has none of them, and waits for them forever.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from random import Random

# Read when libraries are imported; so this module comes before them.
os.environ.update(
    dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "HF_HUB_OFFLINE"), "1")
    | {"TOKENIZERS_PARALLELISM": "false", "ARROW_DEFAULT_MEMORY_POOL": "system", "GOMP_SPINCOUNT": "1000"}
)
sys.dont_write_bytecode = True

from .case import write  # noqa: E402
from .targets import Target  # noqa: E402


def warm(targets: Sequence[Target]) -> list[str]:
    """Use every material as it is; those that do not load, of which attacks would prove little, in words."""
    import torch

    torch.set_num_threads(1)
    before, unloaded = Path.cwd(), []
    for target in targets:
        for name, files in target.materials.items():
            with tempfile.TemporaryDirectory() as place:
                folder, out = Path(place, "in"), Path(place, "out")
                folder.mkdir()
                out.mkdir()
                write(files, folder)
                try:
                    os.chdir(out)
                    target.use(folder, out, Random(2))
                except Exception as error:
                    unloaded.append(f"the healthy {name} of {target.name} does not load: {error}")
                finally:
                    os.chdir(before)
    assert threading.active_count() == 1, threading.enumerate()
    return unloaded
