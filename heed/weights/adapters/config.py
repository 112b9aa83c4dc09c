"""adapter_config.json, typed: what heed computes, what only matters while an adapter learns, and all else refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, Field

from ...core.config import Data, Flag, Positive, Size, Text, Theirs
from ...core.errors import ConfigError

CONFIG, WEIGHTS, PICKLED = "adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"

# What changes nothing once an adapter has learnt: where it came from, how it was trained, which layers got one. The
# last is told by the tensors, of which each must find its layer. `fan_in_fan_out` says how the base lies, which its
# own layout says better.
PAST = {
    *("peft_type", "peft_version", "auto_mapping", "task_type", "inference_mode", "runtime_config"),
    *("target_modules", "exclude_modules", "layers_to_transform", "layers_pattern", "fan_in_fan_out"),
    *("lora_dropout", "eva_config", "loftq_config", "megatron_core", "megatron_config", "qalora_group_size"),
    *("ensure_weight_tying", "use_rslora", "rank_pattern", "alpha_pattern", "modules_to_save", "r", "lora_alpha"),
    *("base_model_name_or_path", "revision", "init_lora_weights", "bias"),
}
# How A and B began. Others (pissa, olora, corda, loftq, lora_ga) also change the base, so that a file is not enough.
BEGINNINGS = (True, False, None, "gaussian", "eva", "orthogonal")
PLAIN = re.compile(r"\^?(?:[A-Za-z0-9_.-]|\\\.)+")  # a pattern that is nothing but the end of a name


def _named(value: object) -> object:
    return () if value is None else (value,) if isinstance(value, str) else value


Names: TypeAlias = Annotated[tuple[Text, ...], BeforeValidator(_named)]


class AdapterConfig(Theirs):
    """The settings of an adapter that change what is computed."""

    r: Size = 8  # rank
    lora_alpha: Positive = 8.0  # what is learnt counts alpha / r times
    use_rslora: Flag = False  # alpha / √r instead (Kalajdzievski 2023)
    rank_pattern: dict[Text, Size] = Field({})  # other ranks, by the end of a layer's name
    alpha_pattern: dict[Text, Positive] = Field({})  # and other alphas
    modules_to_save: Names = ()  # modules that learnt in full: a head
    base_model_name_or_path: Text | None = None  # the checkpoint below
    revision: Text | None = None  # of that checkpoint
    task_type: Text | None = None  # SEQ_CLS, CAUSAL_LM ...

    @classmethod
    def checked(cls, data: Data) -> AdapterConfig:
        """The settings of a file, in which nothing may be that heed does not compute."""
        kind = data.get("peft_type")
        if kind != "LORA":
            raise ConfigError(f"peft_type is {kind!r}; heed reads adapters of the type 'LORA'")
        if data.get("bias", "none") != "none":
            raise ConfigError(f"bias is {data['bias']!r}: biases learnt, too; heed reads bias = 'none'")
        begun = data.get("init_lora_weights")
        if not any(begun is known or begun == known for known in BEGINNINGS):
            raise ConfigError(
                f"init_lora_weights is {begun!r}, which changes the weights of the base, too; heed reads "
                "true, false, 'gaussian', 'eva' and 'orthogonal'"
            )
        for name, value in data.items():
            if name not in PAST and value not in (None, False, "", [], {}):
                raise ConfigError(f"{name} is {str(value)[:80]!r}, which heed does not compute; it reads plain LoRA")
        config = cls.load(data)
        for patterns in (config.rank_pattern, config.alpha_pattern):
            for pattern in patterns:
                if PLAIN.fullmatch(pattern) is None:
                    raise ConfigError(f"the pattern {pattern[:80]!r} is more than the end of a layer's name")
        return config

    def rank_of(self, module: str) -> int:
        """Channels between A and B of a layer."""
        return int(_matching(self.rank_pattern, module, self.r))

    def scale_of(self, module: str) -> float:
        """How often counts what a layer has learnt."""
        rank = self.rank_of(module)
        return _matching(self.alpha_pattern, module, self.lora_alpha) / (rank**0.5 if self.use_rslora else rank)


def _matching(patterns: Mapping[str, float], module: str, default: float) -> float:
    """What the first pattern says that is the name, or its end after a dot."""
    for pattern, value in patterns.items():
        whole = pattern.startswith("^")
        end = pattern.removeprefix("^").replace("\\.", ".")
        if module == end or (module.endswith(f".{end}") and not whole):
            return value
    return default
