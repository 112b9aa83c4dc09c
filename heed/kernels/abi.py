"""The structures that the kernels read, as their sources declare them."""

from __future__ import annotations

from ctypes import CDLL, POINTER, Structure, byref, c_char_p, c_double, c_float, c_int32, c_int64, c_void_p
from enum import IntEnum

from ..threads.openmp import runtime

BACKWARDS, BOTH_WAYS = -1, -2  # in the place of a KV cache: tokens see those before them, or those on both sides


class Weights(IntEnum):
    """How weights are held."""

    FLOAT32 = 0
    INT8 = 1  # whole numbers times a float per row
    GROUPS8 = 2  # whole numbers times a half-precision float per group of 32
    GROUPS4 = 3  # the same in four bits
    TERNARY = 4  # two bits, four rows to a row of bytes
    W8A8 = 5  # as INT8, and tokens are rounded to 8 bits as well


class Operation(IntEnum):
    """What an instruction does."""

    EMBED = 0
    PLACE = 1
    NORM = 2
    LINEAR = 3
    WAVES = 4
    TURN = 5
    ATTEND = 6
    CLAMP = 7
    ADD = 8
    SHIFT = 9
    KEEP = 10
    WKV = 11
    RETAIN = 12


class Mode(IntEnum):
    """What becomes of a product: it is the new value, it is added to the old one, or multiplied with it."""

    SET = 0
    PLUS = 1
    TIMES = 2


class Matrix(Structure):
    """y = x Wᵀ + b."""

    _fields_ = (
        *(("kind", c_int32), ("rows", c_int32), ("columns", c_int32), ("across", c_int32)),
        *(("weights", c_void_p), ("scales", c_void_p), ("bias", c_void_p)),
    )


class Rounded(Structure):
    """Room for tokens as whole numbers."""

    _fields_ = (
        *(("shorts", c_void_p), ("bytes", c_void_p), ("steps", c_void_p), ("sums", c_void_p)),
        *(("tokens", c_int64), ("inputs", c_int64)),
    )


class Register(Structure):
    """Numbers of every row, side by side."""

    _fields_ = (("data", c_void_p), ("width", c_int64))


class KvCache(Structure):
    """The keys and values that one layer remembers."""

    _fields_ = (
        *(("order", c_void_p), ("position", c_void_p), ("key", c_void_p), ("value", c_void_p)),
        *(("room", c_int64), ("length", c_int64), ("cap", c_int64), ("free", c_int64)),
        *(("holes", c_int32), ("source", c_int32), ("slot", c_void_p), ("owner", c_void_p)),
        *(("rows", c_int64), ("key_width", c_int64), ("value_width", c_int64)),
    )


class Instruction(Structure):
    """One operation on registers."""

    _fields_ = (
        *(("operation", c_int32), ("to", c_int32), ("from_", c_int32), ("key", c_int32), ("value", c_int32)),
        *(("number", c_int32 * 6), ("real", c_float * 2), ("table", c_void_p * 2), ("matrix", Matrix)),
    )


class Step(Structure):
    """A call: a program, what it works on, and the tokens."""

    _fields_ = (
        *(("program", POINTER(Instruction)), ("instructions", c_int64)),
        *(("registers", POINTER(Register)), ("register_count", c_int64)),
        *(("caches", POINTER(KvCache)), ("cache_count", c_int64)),
        *(("cells", POINTER(Register)), ("cell_count", c_int64), ("cell_rows", c_int64)),
        *(("tokens", c_void_p), ("order", c_void_p), ("position", c_void_p), ("rows", c_int64), ("room", c_int64)),
        *(("rounded", Rounded), ("scratch", c_void_p), ("widest", c_int64), ("threads", c_int32), ("checked", c_int32)),
        *(("sequences", c_int64), ("begins", c_void_p), ("follows", c_void_p)),
    )


class SelectiveScan(Structure):
    """A selective scan over tokens."""

    _fields_ = (
        *((name, c_int64) for name in ("rows", "tokens", "channels", "numbers", "chunk")),
        *((name, c_void_p) for name in ("step", "input", "write", "read", "rates", "states")),
    )


class SelectiveScanGradients(Structure):
    """The gradients that are given, and those that are found."""

    _fields_ = tuple((name, c_void_p) for name in ("y", "last", "step", "input", "start", "write", "read", "rates"))


class Wkv(Structure):
    """WKV over tokens."""

    _fields_ = (
        *((name, c_int64) for name in ("rows", "tokens", "channels", "chunk")),
        *((name, c_void_p) for name in ("ends", "key", "value", "fade", "bonus", "states")),
    )


class WkvGradients(Structure):
    """The gradients that are given, and those that are found."""

    _fields_ = tuple((name, c_void_p) for name in ("y", "last", "key", "value", "start", "fade", "bonus"))


class Choice(Structure):
    """How tokens are chosen: `source/sampling.h`."""

    _fields_ = (
        *(("temperature", c_double), ("top_p", c_double), ("min_p", c_double), ("top_k", c_int64)),
        *((name, c_void_p) for name in ("draws", "seen", "ends", "live")),
        *(("end_count", c_int64), ("enough", c_int64), ("penalty", c_float), ("cap", c_float)),
    )


class OpenMp(Structure):
    """A runtime of OpenMP, by its functions: `source/team.h`."""

    _fields_ = (("parallel", c_void_p), ("me", c_void_p), ("size", c_void_p))


def hand_over_threads(library: CDLL) -> CDLL:
    """Gives a library the threads that torch computes with: the runtime of OpenMP that torch's own library is bound to.

    Where it is not found, a library that was compiled here has the compiler's runtime, and another one has one thread.
    """
    found = runtime()
    if found is not None:
        library.heed_threads(byref(OpenMp(*found)))
    return library


def declare(library: CDLL) -> CDLL:
    """Tell a library what its functions take and give."""
    library.heed_linear.argtypes = (POINTER(Matrix), c_void_p, c_int64, POINTER(Rounded), c_void_p, c_int32)
    library.heed_linear.restype = c_int32
    pointers = (c_void_p, c_void_p, c_int64, c_int64, c_float, c_void_p, c_void_p, c_int32)
    library.heed_entropy.argtypes = pointers
    library.heed_entropy.restype = c_int32
    library.heed_step.argtypes = (POINTER(Step),)
    library.heed_step.restype = c_int32
    library.heed_write.argtypes = (POINTER(Step), c_int64, c_int32, POINTER(Choice), *(c_void_p,) * 5)
    library.heed_write.restype = c_int64
    library.heed_topk_logprobs.argtypes = (c_void_p, c_int64, c_int64, c_int64, c_void_p, c_void_p, c_int32)
    library.heed_topk_logprobs.restype = c_int32
    library.heed_instructions.restype = c_char_p
    library.heed_threads.argtypes = (POINTER(OpenMp),)
    library.heed_threads.restype = c_int32
    library.heed_huge_pages.argtypes = (POINTER(c_int64), POINTER(c_int64), c_int64, c_int32)
    library.heed_huge_pages.restype = c_int32
    for forwards, given in ((library.heed_selective_scan, SelectiveScan), (library.heed_wkv, Wkv)):
        forwards.argtypes, forwards.restype = (POINTER(given), c_void_p, c_int32), c_int32
    for backwards, given, gradients in (
        (library.heed_selective_scan_back, SelectiveScan, SelectiveScanGradients),
        (library.heed_wkv_back, Wkv, WkvGradients),
    ):
        backwards.argtypes, backwards.restype = (POINTER(given), POINTER(gradients), c_int32), c_int32
    return library
