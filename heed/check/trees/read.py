"""Reading source: which classes and functions of a file are attention, or hold one. Nothing is imported.

Attention is known by its name ("attention", "attn", "mha" ...) or by what it does: a softmax between two products of
what is called query and key, or a call of a fused kernel. Layers, blocks and models over token ids count if they build
something of that kind.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from ..foreign.frameworks import FRAMEWORKS
from ..foreign.words import Role, role_of


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


ATTENTION = _set("attention attentions attn attend attends mha mhsa mhca msa mqa gqa mla sdpa selfattention")
LAYER = _set("layer block encoder decoder transformer")
# What is called after attention without being one.
BESIDE = _set(
    "config configuration output outputs mask masks mixin processor proc loss cache state type info metadata "
    "embedding embeddings norm mlp ffn feedforward test tests backend context function bias args arguments kwargs "
    "params spec"
)
FUSED = _set(
    "scaled_dot_product_attention flash_attn_func flash_attn_qkvpacked_func flash_attn_varlen_func flex_attention "
    "memory_efficient_attention multi_head_attention_forward"
)
PRODUCTS = _set("matmul bmm einsum baddbmm dot mm")
SIGN = re.compile(r"atten|attn|softmax|scaled_dot|mha|msa|mqa|gqa|mla", re.IGNORECASE)  # in any file that may matter
MAGIC = re.compile(r"^\s*[%!?].*$", re.MULTILINE)  # lines of a notebook that are no Python


class Sort(StrEnum):
    """What a candidate is."""

    FUNCTION = "function"
    ATTENTION = "attention"
    LAYER = "layer"
    MODEL = "model"
    UNCOVERED = "attention of another framework"


@dataclass(frozen=True)
class Sighting:
    """A class or function to be checked."""

    name: str
    line: int
    sort: Sort


def words_of(name: str) -> set[str]:
    """The words of a name, in either spelling: MultiHeadAttention, multi_head_attention, MHABlock."""
    parted = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1 \2", name))
    return {word.lower() for word in re.findall(r"[A-Za-z]+", parted)}


def says_attention(name: str) -> bool:
    """Whether a name is that of an attention, and not of something beside it."""
    words = words_of(name)
    return bool(words & ATTENTION) and not words & BESIDE and not name.lower().endswith("residual")


def candidates(text: str, *, notebook: bool = False) -> list[Sighting]:
    """What a source holds, in its order; a SyntaxError if it is no Python."""
    if not SIGN.search(text):
        return []
    module = Module(ast.parse(_cells(text) if notebook else text))
    found = [one for node in module.nodes if (one := module.candidate(node)) is not None]
    return sorted(found, key=lambda one: one.line)


def _cells(text: str) -> str:
    """The code of a notebook, without what is meant for the notebook itself."""
    try:
        cells = json.loads(text)["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError) as error:
        raise SyntaxError(f"it is no notebook: {error}") from error
    return MAGIC.sub("", "\n".join(cell for cell in code if not cell.lstrip().startswith("%%")))


class Module:
    """The classes and functions at the top of a module, and what they build of one another."""

    def __init__(self, tree: ast.Module) -> None:
        self.nodes = list(_top(tree.body))
        self.classes = {node.name: node for node in self.nodes if isinstance(node, ast.ClassDef)}
        self.packages = set(_imported(tree))

    def candidate(self, node: ast.ClassDef | ast.FunctionDef) -> Sighting | None:
        sort = _function(node) if isinstance(node, ast.FunctionDef) else self._class(node)
        return None if sort is None else Sighting(node.name, node.lineno, sort)

    def _class(self, node: ast.ClassDef) -> Sort | None:
        words = words_of(node.name)
        if words & {"config", "mixin", "test", "output", "loss"}:
            return None
        if not self._is_module(node):
            return Sort.UNCOVERED if self._is_of_others(node) else None
        if self.attends(node):
            return Sort.ATTENTION
        if not self._builds(node, frozenset()):
            return None
        if role_of(_first_argument(self._method(node, "forward"))) is Role.IDS:
            return Sort.MODEL
        return Sort.LAYER if words & LAYER and not words & {"embedding", "embeddings"} else None

    def attends(self, node: ast.ClassDef) -> bool:
        """Whether a class is an attention: by name or base, or by what its methods do."""
        if says_attention(node.name):
            return True
        return any(says_attention(base) for base in _bases(node)) or computes_attention(node)

    def _is_module(self, node: ast.ClassDef) -> bool:
        """Whether it can be built and called: it has a forward of its own or of a base, and is not abstract."""
        if any(base in {"Function", "Protocol", "ABC", "Enum", "StrEnum", "NamedTuple"} for base in _bases(node)):
            return False
        forward = self._method(node, "forward")
        if forward is not None:
            return not _empty(forward)
        elsewhere = [base for base in _bases(node) if base not in self.classes]
        return any(says_attention(base) for base in elsewhere)

    def _is_of_others(self, node: ast.ClassDef) -> bool:
        """Whether it is an attention that is called as those of Keras (`call`) and Flax (`__call__`) are."""
        called = self._method(node, "call") or self._method(node, "__call__")
        return called is not None and says_attention(node.name) and bool(self.packages & FRAMEWORKS.keys())

    def _method(self, node: ast.ClassDef, name: str, seen: frozenset[str] = frozenset()) -> ast.FunctionDef | None:
        """A method of a class or of its bases in this module."""
        for part in node.body:
            if isinstance(part, ast.FunctionDef) and part.name == name:
                return part
        for base in _bases(node):
            if base in self.classes and base not in seen:
                found = self._method(self.classes[base], name, seen | {node.name})
                if found is not None:
                    return found
        return None

    def _builds(self, node: ast.ClassDef, seen: frozenset[str]) -> bool:
        """Whether its constructor builds an attention, or something that does."""
        built = self._method(node, "__init__")
        names = {} if built is None else dict.fromkeys(_called(built))
        if any(says_attention(name) for name in names):
            return True
        inner = [name for name in names if name in self.classes and name not in seen and name != node.name]
        if any(self.attends(self.classes[name]) for name in inner):
            return True
        if any(self._builds(self.classes[name], seen | {node.name}) for name in inner):
            return True
        return any(
            words_of(name) & {"block", "layer", "transformer"}
            for name in names
            if name not in self.classes and _proper(name)
        )


def _proper(name: str) -> bool:
    """Whether a name is that of a class, and of a stranger's: not nn.LayerNorm."""
    return name[:1].isupper() and not words_of(name) & {"norm", "drop", "embedding", "config", "list"}


def computes_attention(node: ast.AST) -> bool:
    """Whether code calls a fused kernel, or has a softmax and two products, of what it calls query and key."""
    called = _called(node)
    if any(name in FUSED for name in called):
        return True
    softmax = any(name.lower().endswith("softmax") for name in called)
    products = sum(name in PRODUCTS for name in called)
    products += sum(isinstance(part, ast.BinOp) and isinstance(part.op, ast.MatMult) for part in ast.walk(node))
    return softmax and products > 1 and {Role.QUERY, Role.KEY} <= {role_of(name) for name in _named(node)}


def _function(node: ast.FunctionDef) -> Sort | None:
    """A function over queries, keys and values."""
    arguments = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    roles = {role_of(name) for name in arguments}
    if not {Role.QUERY, Role.KEY, Role.VALUE} <= roles or node.name.startswith("test_") or _empty(node):
        return None
    return Sort.FUNCTION if says_attention(node.name) or computes_attention(node) else None


def _top(body: list[ast.stmt]) -> Iterator[ast.ClassDef | ast.FunctionDef]:
    """Definitions of a module, also those below an `if` or a `try`; of two with one name the last counts."""
    found: dict[str, ast.ClassDef | ast.FunctionDef] = {}
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.If):
            found |= {one.name: one for part in (node.body, node.orelse) for one in _top(part)}
        elif isinstance(node, ast.Try):
            found |= {one.name: one for part in (node.body, node.orelse, node.finalbody) for one in _top(part)}
    yield from found.values()


def _imported(tree: ast.Module) -> Iterator[str]:
    """The top packages that a module imports."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


def _bases(node: ast.ClassDef) -> list[str]:
    """The last names of its bases: `nn.Module` is `Module`."""
    return [_last(base) for base in node.bases]


def _called(node: ast.AST) -> list[str]:
    """The last names of whatever is called."""
    return [_last(part.func) for part in ast.walk(node) if isinstance(part, ast.Call)]


def _last(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript):  # Base[T]
        return _last(node.value)
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _named(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.arg):
            yield part.arg


def _first_argument(forward: ast.FunctionDef | None) -> str:
    names = [] if forward is None else [argument.arg for argument in (*forward.args.posonlyargs, *forward.args.args)]
    return names[1] if len(names) > 1 else ""


def _empty(node: ast.FunctionDef) -> bool:
    """Whether nothing is done: abstract, an overload, or a body that only raises or says what others should do."""
    marks = {_last(mark.func if isinstance(mark, ast.Call) else mark) for mark in node.decorator_list}
    if marks & {"abstractmethod", "overload", "staticmethod"}:
        return True
    body = [part for part in node.body if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))]
    return all(isinstance(part, ast.Pass | ast.Raise) for part in body)
