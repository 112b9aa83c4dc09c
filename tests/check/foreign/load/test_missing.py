"""Packages that are not installed, names that are no longer there: stood in for, named, refused where they compute."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from heed.check import CannotCheck, check
from heed.check.foreign.load.absent import Absent, AbsentBase, Stub, importing
from heed.check.foreign.load.packages import remedy
from heed.check.foreign.load.substitutes import DropPath, to_2tuple
from heed.check.foreign.target import locate
from tests.check.foreign.trees import attention, grow

ONE = """
import torch
from torch import nn
{above}

class Attention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        {make}
        self.n_heads, self.qkv = n_heads, nn.Linear(d_model, 3 * d_model)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.n_heads, -1).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        y = torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v
        {use}
        return y.transpose(1, 2).flatten(2)
"""


def one(folder: Path, above: str, make: str = "pass", use: str = "pass") -> str:
    grow(folder, {"att.py": ONE.format(above=above, make=make, use=use)})
    return f"{folder / 'att.py'}:Attention"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cv2", "run: pip install opencv-python"),
        ("sklearn.metrics", "run: pip install scikit-learn"),
        ("PIL.Image", "run: pip install pillow"),
        ("yaml", "run: pip install pyyaml"),
        ("skimage", "run: pip install scikit-image"),
        ("flash_attn.ops", "run: pip install flash-attn"),
        ("einops", "run: pip install einops"),
        ("apex.normalization", "github.com/NVIDIA/apex"),
        ("google.protobuf", "run: pip install protobuf"),
        ("google.colab", "in Colab only"),
    ],
)
def test_what_to_install(name: str, words: str) -> None:
    assert words in remedy(name)


HARMLESS = {
    "a decorator": ("from mars.ops import jit\n@jit\ndef f(): return 1\nassert f() == 1", "pass", "pass"),
    "a decorator that takes arguments": (
        "import mars\n@mars.jit(mode='x')\ndef f(): return 1\nassert f() == 1",
        "",
        "",
    ),
    "a registry": ("from mars import Registry\nR = Registry('r')\n@R.register_module()\nclass B: pass\nB()", "", ""),
    "annotations": (
        "import typing\nfrom mars import Float, Int\ndef f(x: Float['b'] | None, *y: typing.List[Int]) -> Int: ...",
        "",
        "",
    ),
    "a logger": ("from mars import get_logger\nlog = get_logger(__name__)", "log.info('made')", "log.debug('%s', y)"),
    "progress": ("import tqdm_of_mars as tqdm", "", ""),
    "isinstance": ("import mars", "pass", "assert not isinstance(y, mars.Tensor)"),
    "a missing part of a package that is there": ("from torch.mars import x", "", ""),
    "a part of the project that is not there": ("from utils._C import kernel", "", ""),
    "a name that is no longer there": ("from torch.nn import Transfusion", "", ""),
    "a star": ("from mars import *", "", ""),
    "as": ("import mars.ops as m", "", ""),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_does_not_compute_is_stood_in_for(name: str, tmp_path: Path) -> None:
    grow(tmp_path, {"utils/__init__.py": ""})
    report = check(one(tmp_path, *(part or "pass" for part in HARMLESS[name])))
    assert report.ok, str(report)
    (note,) = [note for note in report.notes if "guessed" not in note]
    assert note.startswith("stubbed: ")


@pytest.mark.parametrize(
    ("above", "make", "use", "words"),
    [
        ("from mars import rearrange", "pass", "y = rearrange(y, 'b n d -> b n d')", "mars.rearrange is called at"),
        ("import mars.nn", "self.act = mars.nn.GELU()", "pass", "mars.nn.GELU is called at"),
        ("from mars import SCALE", "pass", "y = y * SCALE", "mars.SCALE is"),
        ("from mars import TABLE", "pass", "y = torch.add(y, TABLE)", "mars.TABLE is given to torch.add at"),
        ("from mars import fast", "pass", "y = y if fast else y", "mars.fast is asked at"),
        ("from mars import vmap\n@vmap\ndef twice(x): return x", "pass", "y = twice(y)", "mars.vmap() is called at"),
        ("import triton_x", "pass", "from mars import late; y = late(y)", "mars.late is called at"),
        ("import cv3\nS = cv3.scale(2)", "pass", "y = S * y", "cv3.scale() is computed with at"),
    ],
)
def test_what_computes_is_refused_with_what_to_install(
    above: str, make: str, use: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(CannotCheck) as error:
        check(one(tmp_path, above, make, use))
    first = str(error.value).splitlines()[0]
    assert first.startswith(words)
    assert f"{tmp_path / 'att.py'}:" in first
    assert "is not installed; run: pip install" in first


def test_a_kernel_is_no_function(tmp_path: Path) -> None:
    """What triton compiles cannot be called as if it were Python."""
    text = "import triton\n@triton.jit\ndef kernel(x): ..."
    with pytest.raises(CannotCheck, match=r"triton\.jit\(\) is computed with at .*triton is not installed"):
        check(one(tmp_path, text, "pass", "y = kernel[(1,)](y)"))


def test_norms_of_packages_are_torchs(tmp_path: Path) -> None:
    text = "from apex.normalization import FusedLayerNorm\nimport apex"
    make = "self.norm, self.rms = FusedLayerNorm(d_model), apex.normalization.FusedRMSNorm(d_model)"
    target = one(tmp_path, text, make, "y = self.rms(self.norm(y.transpose(1, 2).flatten(2))).view(b, t, 4, -1).mT.mT")
    located = locate(target)
    built = located.found(24, 4)
    assert (type(built.norm), type(built.rms)) == (nn.LayerNorm, nn.RMSNorm)
    assert any("FusedLayerNorm is torch.nn.LayerNorm" in note for note in located.notes)


def test_substitutes_compute_what_the_originals_do() -> None:
    x = torch.ones(1000, 3)
    drop = DropPath(0.5)
    assert torch.equal(drop.eval()(x), x)
    dropped = drop.train()(x)
    assert set(dropped.unique().tolist()) == {0.0, 2.0}  # whole rows, and the others scaled up
    assert 400 < int((dropped.sum(1) == 0).sum()) < 600  # half of a thousand; its standard deviation is 16
    assert to_2tuple(7) == (7, 7)
    assert to_2tuple((3, 4)) == (3, 4)


def test_names_that_have_moved(tmp_path: Path) -> None:
    above = "from collections import Iterable\nfrom torch._six import container_abcs, inf\n"
    located = locate(attention(tmp_path, above + "assert isinstance([], Iterable)\nassert inf > 1"))
    assert vars(sys.modules[located.found.__module__])["container_abcs"].Sequence
    assert located.notes == ()


GUARDED = {
    "try": "try:\n    import mars\nexcept ImportError:\n    mars = None",
    "try, a name": "try:\n    from torch.nn import Transfusion as mars\nexcept ImportError:\n    mars = None",
    "any": "try:\n    import mars\nexcept:\n    mars = None",
    "one of several": "try:\n    import mars\nexcept (ValueError, ModuleNotFoundError) as e:\n    mars = None",
    "suppress": "import contextlib\nmars = None\nwith contextlib.suppress(ImportError):\n    import mars",
    "in a function": "def f():\n  try:\n    import mars\n  except ImportError:\n    return None\nmars = f()",
    "in another file": "try:\n    from helper import mars\nexcept ImportError:\n    mars = None",
    "spec": "import importlib.util\nmars = importlib.util.find_spec('mars')",
}


@pytest.mark.parametrize("name", GUARDED)
def test_code_that_can_do_without_is_left_to_do_without(name: str, tmp_path: Path) -> None:
    grow(tmp_path, {"helper.py": "import mars"})
    located = locate(attention(tmp_path, GUARDED[name]))
    assert vars(sys.modules[located.found.__module__])["mars"] is None
    assert located.notes == ()


@pytest.mark.parametrize("kind", ["ValueError", "KeyError"])
def test_a_try_for_something_else_is_no_guard(kind: str, tmp_path: Path) -> None:
    located = locate(attention(tmp_path, f"try:\n    import mars\nexcept {kind}:\n    mars = None"))
    assert "stubbed: mars (not installed; run: pip install mars)" in located.notes


def test_a_package_that_is_broken_is_stood_in_for_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(tmp_path / "site", {"cudalib.py": "raise OSError('libcudart.so.11: no such file')", "wants.py": "import mars"})
    monkeypatch.syspath_prepend(tmp_path / "site")
    located = locate(attention(tmp_path / "mine", "import cudalib\nimport wants"))
    assert located.notes == (
        "stubbed: cudalib (there, but cannot be imported: OSError: libcudart.so.11: no such file)",
        "stubbed: wants (of no use without mars, which is not installed; run: pip install mars)",
    )


BASES = """
from mars import BaseModule, Mixin, Config
@R.register_module()
class Attention({bases}):
    def __init__(self, d_model, n_heads, init_cfg=None):
        super().__init__({given})
        self.save_hyperparameters()
        self.inner = Inner(d_model, n_heads)
    def forward(self, x):
        return self.inner(x)
"""


@pytest.mark.parametrize("bases", ["BaseModule", "BaseModule, Mixin", "Mixin, Config"])
def test_a_base_that_is_not_there(bases: str, tmp_path: Path) -> None:
    above = "from mars import Registry\nR = Registry('x')\nATTENTION\nInner = Attention\n"
    grow(tmp_path, {"att.py": above + BASES.format(bases=bases, given="init_cfg=init_cfg")})
    report = check(f"{tmp_path / 'att.py'}:Attention")
    assert report.ok, str(report)


def test_a_base_that_would_compute_is_refused(tmp_path: Path) -> None:
    grow(
        tmp_path,
        {"att.py": "from mars import A\nclass Attention(A):\n  def forward(self, x):\n    return super().forward(x)"},
    )
    with pytest.raises(CannotCheck, match=r"mars\.A is the base that would compute it at .*att\.py:4, but mars is not"):
        check(f"{tmp_path / 'att.py'}:Attention")


def test_a_stand_in_passes_for_nothing_else() -> None:
    stub: Any = Stub("mars", "mars is not installed")
    with importing():
        kind = type("Both", *_bases(nn.Module, stub))
        assert issubclass(kind, nn.Module)
        assert not issubclass(kind, AbsentBase)
        assert "mars" in f"{stub:>10}"
        assert [*stub, len(stub), bool(stub), 1 in stub] == [0, False, False]
    assert copy.deepcopy(stub) is stub
    assert not hasattr(stub, "__wrapped__")
    for use in (lambda: [*stub], lambda: len(stub), lambda: bool(stub), lambda: 1 in stub, lambda: stub < 1):
        with pytest.raises(Absent, match="mars is not installed"):
            use()


def _bases(*bases: Any) -> tuple[tuple[type, ...], dict[str, Any]]:
    import types

    return types.resolve_bases(bases), {}


def test_a_target_that_is_a_stand_in_is_refused(tmp_path: Path) -> None:
    grow(tmp_path, {"att.py": "from mars import Attention"})
    with pytest.raises(CannotCheck, match="does not give 'Attention': mars is not installed; run: pip install mars"):
        locate(f"{tmp_path / 'att.py'}:Attention")


def test_stand_ins_are_seen_by_the_strangers_files_only(tmp_path: Path) -> None:
    locate(attention(tmp_path, "import mars"))
    assert "mars" not in sys.modules
    with pytest.raises(ImportError):
        __import__("mars")
