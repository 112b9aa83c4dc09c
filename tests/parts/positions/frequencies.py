"""The frequencies of a rotation, written for one channel after the other."""

from __future__ import annotations

import math

from heed.parts.positions import Dynamic, Linear, Llama3, LongRope, Rope, Scaling, Yarn


def rope_frequencies(config: Rope.Config, n: int) -> tuple[list[float], float]:
    """Of n channels, and what cosine and sine are multiplied by."""
    half = n // 2
    f = [config.base ** -(2 * c / n if config.spread == "paper" else c / (half - 1)) for c in range(half)]
    return f if config.scaling is None else scaled(config.scaling, f, n, config.base), amplitude(config.scaling)


def scaled(scaling: Scaling, f: list[float], n: int, base: float) -> list[float]:
    match scaling:
        case Linear():
            return [x / scaling.factor for x in f]
        case Llama3():
            return [llama3(scaling, x) for x in f]
        case Yarn():
            return yarn(scaling, f, n, base)
        case Dynamic():
            length = max(scaling.length or 0, scaling.original)
            grown = base * (scaling.factor * length / scaling.original - scaling.factor + 1) ** (n / (n - 2))
            return [grown ** -(2 * c / n) for c in range(len(f))]
        case LongRope():
            divisors = scaling.long if scaling.length and scaling.length > scaling.original else scaling.short
            return [f[c] / divisors[c] for c in range(len(f))]
        case _:
            raise AssertionError(f"{scaling!r} has no equation here")


def llama3(scaling: Llama3, x: float) -> float:
    wavelength = 2 * math.pi / x
    if wavelength > scaling.original / scaling.low:
        return x / scaling.factor
    if wavelength < scaling.original / scaling.high:
        return x
    s = (scaling.original / wavelength - scaling.low) / (scaling.high - scaling.low)
    return (1 - s) * x / scaling.factor + s * x


def yarn(scaling: Yarn, f: list[float], n: int, base: float) -> list[float]:
    def channel(turns: float) -> float:
        return n * math.log(scaling.original / (2 * math.pi * turns)) / (2 * math.log(base))

    first, last = channel(scaling.fast), channel(scaling.slow)
    low = max(math.floor(first) if scaling.whole else first, 0)
    high = min(math.ceil(last) if scaling.whole else last, n - 1)
    gap = high - low if high != low else 0.001
    ramps = [max(0.0, min(1.0, (c - low) / gap)) for c in range(len(f))]
    return [ramp * x / scaling.factor + (1 - ramp) * x for ramp, x in zip(ramps, f, strict=True)]


def amplitude(scaling: Scaling | None) -> float:
    match scaling:
        case Yarn():
            return scaling.attention or 0.1 * math.log(scaling.factor) + 1
        case LongRope():
            return scaling.attention or math.sqrt(1 + math.log(scaling.factor) / math.log(scaling.original))
        case _:
            return 1.0
