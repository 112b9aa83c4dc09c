"""The mechanisms before and beside the Transformer, as their reference code computes them.

heed's own parts do the work; what is added here is where a reference differs from them. The d2l book hides a key by
setting its score to -1e6, so a query with nothing to look at gets the plain mean of all values, where heed gives zeros.
Its kernel regression divides by the sum of the kernel as it is, so a query without support is NaN, where heed gives
zeros again. A replay gives what the reference gives.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ....core.config import nearest
from ....core.contract import Where
from ....core.errors import WeightsError
from ....parts.attention.attend import attend, written_out
from ....parts.masks import Causal, Fixed, Mask, Strided, Window
from ....parts.scores import (
    Additive,
    Boxcar,
    Constant,
    Gaussian,
    Kernel,
    ScaledDot,
    Score,
    Triangular,
    valid_lengths,
)
from ...formats.folder import Folder
from ...rename import Same, Table, restore
from . import recurrent

HIDDEN = -1e6  # the d2l book's score of a hidden key

# In the d2l book "epanechikov" (its spelling) is max(0, 1 - |u|), which others call triangular.
KERNELS: dict[str, Callable[[float], Kernel]] = {
    "gaussian": lambda width: Gaussian(1, 1, width),
    "boxcar": lambda width: Boxcar(1, 1, width),
    "constant": lambda width: Constant(1, 1),
    "epanechikov": lambda width: Triangular(1, 1, width),
    "epanechnikov": lambda width: Triangular(1, 1, width),
}

ADDITIVE: Table = (
    Same("W_q.weight", "query.weight"),
    Same("W_k.weight", "key.weight"),
    Same("w_v.weight", "out.weight"),
)


def bahdanau(folder: Folder) -> dict[str, Tensor]:
    """Additive attention (Bahdanau et al. 2014) as in the d2l book, alone or in its encoder-decoder."""
    if not {"query_size", "key_size"} & folder.config.keys():
        return recurrent.outputs(folder)
    config = Additive.Config(hidden=folder.size("num_hiddens"))
    sizes = folder.size("query_size"), folder.size("key_size")
    return _with_and_without_lengths(folder, restore(lambda: config.build(*sizes), folder, ADDITIVE))


def dot_product(folder: Folder) -> dict[str, Tensor]:
    """Scaled dot-product attention (Vaswani et al. 2017) as in the d2l book."""
    size = folder.input("queries").shape[-1]
    return _with_and_without_lengths(folder, ScaledDot(size, size))


def nadaraya_watson(folder: Folder) -> dict[str, Tensor]:
    """Kernel regression (Nadaraya 1964, Watson 1964) as in the d2l book: one number predicts another.

    `<kernel>_width` in the config asks for that kernel a second time, with its width.
    """
    train, target, query = (folder.input(name).reshape(-1) for name in ("x_train", "y_train", "x_val"))
    if train.shape != target.shape:
        raise WeightsError(f"{folder.path}: {len(train)} x_train have {len(target)} y_train; every x needs its y")
    kernels = {name: _kernel(folder, name, 1.0) for name in _listed(folder)}
    for name in KERNELS:
        if f"{name}_width" in folder.config:
            kernels[f"{name}_width"] = _kernel(folder, name, folder.number(f"{name}_width"))

    made: dict[str, Tensor] = {}
    for name, kernel in kernels.items():
        weight = kernel.profile(kernel.distance(query[:, None], train[:, None]))  # [queries, keys]
        weight = weight / weight.sum(-1, keepdim=True)
        made[f"weights.{name}"] = weight.mT.contiguous()  # the book has a column per query
        made[f"y_hat.{name}"] = weight @ target
    return made


def sparse(folder: Folder) -> dict[str, Tensor]:
    """The patterns of the Sparse Transformer (Child et al. 2019) as in its authors' code.

    They give every pattern but the fixed one in two forms, dense and in blocks, which agree.
    """
    heads = folder.size("heads")
    query, key, value = (_split(folder, name, heads) for name in ("q", "k", "v"))
    if not query.shape[:2] == key.shape[:2] == value.shape[:2]:
        raise WeightsError(f"{folder.path}: q, k and v must agree in rows and tokens")

    here = Where.run(1, query.shape[1])

    made: dict[str, Tensor] = {}
    for name, mask in _patterns(folder, heads).items():
        visible = mask(here, here).pairs(heads)[0]  # [heads or 1, n, n]
        made[f"mask.{name}"] = visible.expand(heads, -1, -1).clone() if name == "fixed" else visible[0]
        made[f"blocksparse.{name}"] = attend(query, key, value, mask).flatten(2)
        if name != "fixed":
            made[f"dense.{name}"] = written_out(query, key, value, mask)[0].flatten(2)
    return made


def _with_and_without_lengths(folder: Folder, score: Score) -> dict[str, Tensor]:
    """Weights and outputs, with the valid lengths if there are any and (`_nomask`) without them."""
    query, key, value = (folder.input(name) for name in ("queries", "keys", "values"))
    shapes = [tuple(tensor.shape) for tensor in (query, key, value)]
    rows = {shape[:1] for shape in shapes}
    if any(len(shape) != 3 for shape in shapes) or len(rows) != 1 or shapes[1][1] != shapes[2][1]:
        raise WeightsError(
            f"{folder.path}: queries, keys and values have shapes {shapes}; needed is [rows, tokens, size] "
            "three times, with the same rows, and as many keys as values"
        )
    visible = _visible(folder, query, key) if "valid_lens" in folder.inputs else None

    made: dict[str, Tensor] = {}
    for suffix, seen in (("", visible), ("_nomask", None)):
        scores = score(query, key)
        weight = score.weigh(scores if seen is None else scores.masked_fill(~seen, HIDDEN), None)
        made[f"attention_weights{suffix}"] = weight
        made[f"output{suffix}"] = weight @ value
    return made


def _visible(folder: Folder, query: Tensor, key: Tensor) -> Tensor:
    """The book counts keys whose index is below the valid length: a fraction counts up, too much is everything."""
    rows, queries, keys = *query.shape[:2], key.shape[1]
    lengths = folder.input("valid_lens").ceil().clamp(0, keys).long()
    if lengths.shape[:1] != (rows,):
        raise WeightsError(f"{folder.path}: valid_lens has shape {tuple(lengths.shape)} for {rows} rows")
    return valid_lengths(lengths, queries, keys)


def _listed(folder: Folder) -> list[str]:
    names = folder.config.get("kernels", ["gaussian", "boxcar", "constant", "epanechikov"])
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        return names
    raise WeightsError(f"{folder.path}: kernels is {names!r}; needed is a list of names: {', '.join(sorted(KERNELS))}")


def _kernel(folder: Folder, name: str, width: float) -> Kernel:
    if name not in KERNELS:
        raise WeightsError(f"{folder.path} lists the kernel {name!r}{nearest(name, KERNELS)}")
    return KERNELS[name](width)


def _split(folder: Folder, name: str, heads: int) -> Tensor:
    """[rows, tokens, heads · size] to [rows, tokens, heads, size]."""
    tensor = folder.input(name)
    if tensor.dim() != 3 or tensor.shape[-1] % heads:
        raise WeightsError(
            f"{folder.path}: {name} has shape {tuple(tensor.shape)}; needed is [rows, tokens, width] "
            f"with a width that divides into {heads} heads"
        )
    return tensor.reshape(*tensor.shape[:2], heads, tensor.shape[2] // heads)


def _patterns(folder: Folder, heads: int) -> dict[str, Mask]:
    """The masks whose outputs are asked for or, if that is not known, those that the config describes."""
    masks: dict[str, Mask] = {}
    if _asked(folder, "all"):
        masks["all"] = Causal()
    if _asked(folder, "local", "local_attn_ctx"):
        masks["local"] = Window(back=folder.size("local_attn_ctx") - 1)
    if _asked(folder, "strided", "local_attn_ctx"):
        masks["strided"] = Strided(stride=folder.size("local_attn_ctx"))
    if _asked(folder, "fixed", "local_attn_ctx", "blocksize"):
        masks["fixed"] = Fixed(
            context=folder.size("local_attn_ctx"),
            block=folder.size("blocksize", 32),
            summaries=folder.size("vertsize", 1),
            patterns=min(heads, folder.size("num_verts", 4)),
        )
    return masks


def _asked(folder: Folder, name: str, *needed: str) -> bool:
    if folder.wanted is None:
        return all(option in folder.config for option in needed)
    return any(folder.wants(f"{form}.{name}") for form in ("mask", "dense", "blocksparse"))
