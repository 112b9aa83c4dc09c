"""Configurations: of their own class if that can be found, else an object that answers by name what it is asked.

What such an object does not know by name it refuses, as an object without that attribute would; so defaults of the
foreign code apply. If the constructor fails on that, the next trial answers with a guess, which the report shows.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any

from ..sizes import Sizes, cut, is_dropout, listed, size_word

NESTED = listed(
    "model transformer attention attn encoder decoder network arch architecture backbone params config cfg "
    "hparams args module common text vision"
)
FLAGS = listed("use is has enable with do qkv causal bias flash add apply learnable share tie scale")
UNKNOWN: tuple[Any, ...] = (False, None, "none", 1)  # what is said of a name that says nothing, one after the other


class Unknown(AttributeError, KeyError):
    """A configuration was asked for something that it does not know."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the configuration was asked for {name!r}, which is unknown; give --init")
        self.name = name

    def __str__(self) -> str:
        return str(self.args[0])


class GuessedConfig:
    """A configuration that knows every size by its usual names, and what it was told to answer."""

    def __init__(self, sizes: Sizes, answers: Mapping[str, Any] | None = None) -> None:
        self.__dict__["_sizes"] = sizes
        self.__dict__["_answers"] = dict(answers or {})
        self.__dict__["_asked"] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or "_sizes" not in self.__dict__:
            raise AttributeError(name)
        found = self._found(name)
        self.__dict__["_asked"][name] = found
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        self._answers[name] = value

    def _found(self, name: str) -> Any:
        if name in self._answers:
            return self._answers[name]
        if is_dropout(name):
            return 0.0
        words = cut(name)
        if name.lower() in NESTED or (len(words) == 2 and words[1] in {"config", "cfg", "args", "params"}):
            return self
        word = size_word(name)
        if word is not None:
            return getattr(self._sizes, word)
        usual = usual_value(name)
        if usual is not None or name in {"device", "dtype"}:
            return usual
        raise Unknown(name)

    def __getitem__(self, name: str) -> Any:
        if not isinstance(name, str):
            raise TypeError(f"the configuration was asked for {name!r}")
        return getattr(self, name)

    def __contains__(self, name: object) -> bool:
        return self.get(name) is not None

    def get(self, name: Any, default: Any = None) -> Any:
        try:
            return getattr(self, name)
        except (AttributeError, TypeError):
            return default

    @property
    def asked(self) -> list[str]:
        """What it was asked for."""
        return list(self._asked)

    def keys(self) -> list[str]:
        return list(self._answers)

    def __repr__(self) -> str:
        told = ", ".join(f"{name}={value!r}" for name, value in self._asked.items() if value is not self)
        return f"config({told})"


def usual_value(name: str) -> object | None:
    """What an argument that is no size is usually given, by its name; None if there is no usual value."""
    plain = name.lower().strip("_")
    if re.search(r"drop|dpr|p_drop", plain) or plain in {"pdrop", "p"}:
        return 0.0
    if plain in _PLAIN:
        return _PLAIN[plain]
    words = frozenset(cut(name))
    if words & {"eps", "epsilon"}:
        return 1e-5
    if "activation" in words and words <= {"activation", "fn", "function", "type", "name"}:
        return "gelu"
    if words & {"theta"}:
        return 10000.0
    if words & {"idx", "index", "id", "layernum"} and words & {"layer", "block", "head"}:
        return 0
    return False if words and cut(name)[0] in FLAGS else None


_PLAIN: dict[str, object] = {
    **dict.fromkeys(("layer_idx", "layer_id", "layer_index", "layer_number", "layer_num"), 0),
    **dict.fromkeys(("activation", "act", "hidden_act", "activation_function", "act_fn", "hidden_activation"), "gelu"),
    **dict.fromkeys(("base", "rope_base"), 10000.0),
    **dict.fromkeys(("forward_expansion", "expansion", "mlp_ratio", "expansion_factor", "ff_mult", "mult"), 2),
    **dict.fromkeys(("reduction", "reduction_ratio"), 4),
    **dict.fromkeys(("kernel_size", "kernel"), 3),
    **dict.fromkeys(("stride", "sr_ratio", "dilation", "patch_size"), 1),
    **dict.fromkeys(("num_classes", "n_classes", "num_class"), 10),
    **dict.fromkeys(("dev",), "cpu"),
    **dict.fromkeys(("initializer_range", "init_std", "init_method_std", "std"), 0.02),
    **dict.fromkeys(("init_values", "layer_scale_init_value"), 0.1),
    **dict.fromkeys(("num_buckets", "relative_attention_num_buckets", "rel_pos_bins", "buckets"), 32),
    **dict.fromkeys(("max_distance", "relative_attention_max_distance", "max_rel_pos", "max_relative_distance"), 128),
    "attention_type": "global",
    "batch_first": True,
    "bias": True,
}


def config_classes(annotation: Any, make: Callable[..., Any]) -> list[type]:
    """Classes that may be meant: by the annotation, then those beside the target whose name says so."""
    home = sys.modules.get(getattr(make, "__module__", ""), None)
    names = vars(home) if home is not None else {}
    noted = names.get(annotation.strip("'\"").split("|")[0].strip()) if isinstance(annotation, str) else annotation
    beside = [value for name, value in names.items() if inspect.isclass(value) and _says_config(name)]
    own = [value for value in beside if value.__name__ not in ("PreTrainedConfig", "PretrainedConfig")]
    prefix = getattr(make, "__name__", "")
    own.sort(key=lambda kind: -_shared(kind.__name__, prefix))
    kinds = [kind for kind in (noted, *own) if inspect.isclass(kind)]
    return [kind for kind in kinds if kind.__module__ not in ("builtins", "inspect", "argparse", "typing", "types")]


def _says_config(name: str) -> bool:
    words = cut(name)
    return bool(words) and words[-1] in {"config", "args", "cfg", "arguments", "hparams", "params", "configuration"}


def _shared(one: str, other: str) -> int:
    """How many letters two names begin with in common."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def configurations(annotation: Any, sizes: Sizes, make: Callable[..., Any]) -> Iterator[Any]:
    """Configurations of classes that can be found, best first."""
    for kind in config_classes(annotation, make)[:3]:
        for told in Told:
            try:
                yield _configuration(kind, sizes, told)
                break
            except Exception:  # the next one may do
                continue


class Told(Enum):
    """How much of what it is asked for a configuration is told, the most first."""

    ALL = "whatever is a size"
    NUMBERS = "sizes that are numbers if nothing is said"
    NEEDED = "what it must be told"


def _configuration(kind: type, sizes: Sizes, told: Told) -> Any:
    """An instance with the sizes that it knows: of a dataclass, of a class with arguments, of transformers."""
    parameters = {n: p for n, p in inspect.signature(kind).parameters.items() if n not in {"self", "kwargs", "args"}}
    names = [name for name, p in parameters.items() if p.kind is not p.VAR_KEYWORD]
    if not names:
        made = kind()
        names = [name for name in vars(made) if not name.startswith("_")] if _takes_more(kind) else []
    needed = {name for name, p in parameters.items() if p.default is p.empty}
    known: dict[str, Any] = {}
    for name in names:
        word, default = size_word(name), parameters[name].default if name in parameters else None
        whole = isinstance(default, int) and not isinstance(default, bool)
        open_ = default is None and told is Told.ALL and not _says_several(parameters.get(name))
        if word is not None and (whole or open_ or name in needed):
            known[name] = getattr(sizes, word)
        elif is_dropout(name):
            known[name] = 0.0
        elif name in needed:
            known[name] = usual_value(name)
    lists: dict[str, Any] = {name: None for name in ("rope_scaling", "layer_types") if name in names}
    given = {name: value for name, value in known.items() if name in needed}
    given = given if told is Told.NEEDED else {**known, **lists}
    made = kind(**given)
    if not names:
        _set(made, sizes)
    if "_attn_implementation" in dir(made):  # what configurations of transformers lack until a model is made of them
        made._attn_implementation = "eager"
    return made


def _says_several(parameter: inspect.Parameter | None) -> bool:
    """Whether an annotation tells that no number is meant."""
    noted = "" if parameter is None or parameter.annotation is parameter.empty else str(parameter.annotation)
    return bool(noted) and "int" not in noted and "Any" not in noted


def _takes_more(kind: type) -> bool:
    return any(p.kind is p.VAR_KEYWORD for p in inspect.signature(kind).parameters.values())


def _set(made: Any, sizes: Sizes) -> None:
    """The sizes of a configuration that is a class with attributes, and has no constructor to tell them."""
    for name in [n for n in dir(made) if not n.startswith("_")]:
        value, word = getattr(made, name), size_word(name)
        if word is not None and isinstance(value, int) and not isinstance(value, bool):
            setattr(made, name, getattr(sizes, word))
        elif is_dropout(name) and isinstance(value, float):
            setattr(made, name, 0.0)
