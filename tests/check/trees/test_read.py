"""What is attention, by reading: names, products around a softmax, fused kernels; what merely has the word is not."""

from __future__ import annotations

import json

import pytest

from heed.check.trees.read import Sort, candidates, says_attention, words_of

FORWARD = "    def forward(self, x):\n        return x\n"


def names(text: str) -> dict[str, Sort]:
    return {one.name: one.sort for one in candidates(text)}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("MultiHeadAttention", {"multi", "head", "attention"}),
        ("multi_head_attn", {"multi", "head", "attn"}),
        ("MHABlock", {"mha", "block"}),
        ("GPT2Attention", {"gpt", "attention"}),
        ("_WindowMSA2d", {"window", "msa", "d"}),
    ],
)
def test_names_are_cut_into_words(name: str, words: set[str]) -> None:
    assert words_of(name) == words


@pytest.mark.parametrize("name", ["SelfAttention", "attend", "T5LayerSelfAttention", "MHA", "cross_attn", "MLA"])
def test_names_of_attention(name: str) -> None:
    assert says_attention(name)


@pytest.mark.parametrize(
    "name",
    [
        *("AttentionConfig", "AttnMask", "AttentionOutput", "attention_mask", "FlashAttentionKwargs", "Attenuation"),
        "AttentionResidual",
    ],
)
def test_names_of_what_is_beside_it(name: str) -> None:
    assert not says_attention(name)


PRODUCT = """
class Mixing(nn.Module):
    def forward(self, x):
        q, k, v = self.make(x)
        {scores}
        return {out}
"""


@pytest.mark.parametrize(
    ("scores", "out", "found"),
    [
        ("w = (q @ k.mT).softmax(-1)", "w @ v", True),
        ("w = F.softmax(torch.matmul(q, k), dim=-1)", "torch.bmm(w, v)", True),
        ("w = self.softmax(torch.einsum('bid,bjd->bij', q, k))", "torch.einsum('bij,bjd->bid', w, v)", True),
        ("w = 0", "F.scaled_dot_product_attention(q, k, v)", True),
        ("w = q.softmax(-1)", "w @ v", False),  # one product: no attention
        ("w = q @ k.mT", "w @ v", False),  # no softmax
    ],
)
def test_what_computes_attention_is_one_whatever_it_is_called(scores: str, out: str, found: bool) -> None:
    assert names(PRODUCT.format(scores=scores, out=out)) == ({"Mixing": Sort.ATTENTION} if found else {})


def test_a_router_of_experts_is_none() -> None:
    """A softmax between two products, of other things than queries and keys."""
    code = "w = (x @ self.gate).softmax(-1)\n        kept = w @ self.up"
    text = PRODUCT.format(scores=code, out="kept @ self.down").replace("q, k, v", "a, b, c")
    assert names(text) == {}


INNER = FORWARD.replace("    ", "        ")
CLASSES = {
    "by its name": (f"class SelfAttention(nn.Module):\n{FORWARD}", "SelfAttention"),
    "by a base elsewhere": ("class Flash(LlamaAttention):\n    fast = True\n", "Flash"),
    "of torch": ("class Mine(nn.MultiheadAttention):\n    pass\n", "Mine"),
    "below an if": (f"if True:\n    class Attn(nn.Module):\n{INNER}", "Attn"),
    "in a try": (f"try:\n    class Attn(nn.Module):\n{INNER}\nexcept Exception: ...", "Attn"),
}


@pytest.mark.parametrize(("text", "name"), CLASSES.values(), ids=CLASSES)
def test_classes(text: str, name: str) -> None:
    assert names(text) == {name: Sort.ATTENTION}


RAISES = """
class Attention(nn.Module):
    def forward(self, x):
        '''Later.'''
        raise NotImplementedError
"""
FUNCTION = """
class FlashAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q):
        return q
"""
CONVOLUTION = """
class ConvLayer(nn.Module):  # in the place of attention
    def __init__(self):
        self.conv = nn.Conv1d(1, 1, 1)
    def forward(self, x):
        return self.conv(x)
"""
NONE = {
    "no forward": "class AttentionKind:\n    pass\n",
    "a config": f"class AttentionConfig(nn.Module):\n{FORWARD}",
    "abstract": "class Attention(nn.Module):\n    @abstractmethod\n    def forward(self, x): ...\n",
    "only raises": RAISES,
    "an autograd function": FUNCTION,
    "a mask": "def attention_mask(q, k, v):\n    return q @ k\n",
    "a helper": "def split_attention(x):\n    return x\n",
    "a test": "def test_attention(q, k, v):\n    return q @ k\n",
    "an overload": "@overload\ndef attention(q, k, v): ...\n",
    "a layer without attention": CONVOLUTION,
}


@pytest.mark.parametrize("text", NONE.values(), ids=NONE)
def test_what_is_none(text: str) -> None:
    assert names(text) == {}


LAYERS = """
class Core(nn.Module):
    def forward(self, x):
        q, k, v = self.qkv(x)
        return (q @ k).softmax(-1) @ v

class Block(nn.Module):
    def __init__(self):
        self.core = Core()
    def forward(self, x):
        return self.core(x)

class DecoderLayer(nn.Module):
    def __init__(self):
        self.attn = nn.MultiheadAttention(8, 2)
    def forward(self, x):
        return self.attn(x, x, x)

class Network(nn.Module):
    def __init__(self):
        self.blocks = nn.ModuleList([Block() for _ in range(3)])
    def forward(self, input_ids, labels=None):
        return input_ids

class Head(nn.Module):
    def __init__(self):
        self.blocks = Block()
    def forward(self, x):
        return x
"""


def test_layers_and_models_count_if_they_build_one() -> None:
    assert names(LAYERS) == {
        "Core": Sort.ATTENTION,
        "Block": Sort.LAYER,
        "DecoderLayer": Sort.LAYER,
        "Network": Sort.MODEL,
    }


FUNCTIONS = """
def scaled_attention(query, key, value, mask=None):
    return mix(query, key, value)

def mixed(q, k, v):
    return (q @ k.mT).softmax(-1) @ v

def attention_weights(q, k):
    return (q @ k.mT).softmax(-1)
"""


def test_functions_over_queries_keys_and_values() -> None:
    assert names(FUNCTIONS) == {"scaled_attention": Sort.FUNCTION, "mixed": Sort.FUNCTION}


def test_of_two_with_one_name_the_last_counts() -> None:
    text = FUNCTIONS + "\n\n" + FUNCTIONS
    found = candidates(text)
    assert [one.name for one in found] == ["scaled_attention", "mixed"]
    assert all(one.line > FUNCTIONS.count("\n") for one in found)


def test_classes_that_build_each_other_end() -> None:
    text = "class A(nn.Module):\n    def __init__(self):\n        self.x = B()  # attn\n" + FORWARD
    assert names(text + text.replace("class A", "class B").replace("B()", "A()")) == {}


def test_a_class_that_is_its_own_base_ends() -> None:
    assert names("class AttnBlock(AttnBlock):\n    pass\n") == {}


def test_a_notebook_is_read_without_its_magic() -> None:
    code = ["%matplotlib inline\n", "!pip install torch\n", "def attention(q, k, v):\n", "    return mix(q, k, v)\n"]
    cells = [
        {"cell_type": "markdown", "source": ["attention"]},
        {"cell_type": "code", "source": code},
        {"cell_type": "code", "source": "%%bash\nls attention"},
    ]
    (found,) = candidates(json.dumps({"cells": cells}), notebook=True)
    assert found.name == "attention"
    with pytest.raises(SyntaxError, match="it is no notebook"):
        candidates('{"attention": 1}', notebook=True)


FLAX = """
from flax import linen as nn


class SelfAttention(nn.Module):
    @nn.compact
    def __call__(self, x):
        return x
"""


def test_attention_of_another_framework_is_seen_as_such() -> None:
    assert names(FLAX) == {"SelfAttention": Sort.UNCOVERED}
    assert names(FLAX.replace("flax", "mine")) == {}, "a class that can be called is none"
    assert names(FLAX.replace("__call__", "forward")) == {"SelfAttention": Sort.ATTENTION}
