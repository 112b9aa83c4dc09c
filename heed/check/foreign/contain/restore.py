"""Settings of the process that foreign code changes: as they were, afterwards."""

from __future__ import annotations

import logging
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

Back = Callable[[], object]
MISSING = object()


@contextmanager
def restored() -> Iterator[None]:
    """Whatever is set inside is set back."""
    backs = [keep() for keep in KEPT]
    try:
        yield
    finally:
        for back in reversed(backs):
            back()


@contextmanager
def replaced(owner: Any, **new: Any) -> Iterator[None]:
    """Attributes of a module or class that are others meanwhile."""
    before = {name: vars(owner).get(name, MISSING) for name in new}
    for name, value in new.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is MISSING:  # it was inherited
                delattr(owner, name)
            else:
                setattr(owner, name, value)


def _folder() -> Back:
    try:
        before = os.getcwd()
    except OSError:  # it was deleted
        return lambda: None
    return lambda: os.chdir(before)


def _python() -> Back:
    path, argv, limit = list(sys.path), list(sys.argv), sys.getrecursionlimit()
    hooks = sys.excepthook, sys.displayhook, sys.breakpointhook

    def back() -> None:
        sys.path[:], sys.argv[:] = path, argv
        sys.excepthook, sys.displayhook, sys.breakpointhook = hooks
        sys.setrecursionlimit(limit)

    return back


def _environment() -> Back:
    before = dict(os.environ)

    def back() -> None:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)

    return back


def _warnings() -> Back:
    kept = warnings.catch_warnings()
    kept.__enter__()
    warnings.simplefilter("ignore")  # strangers' code is old
    return lambda: kept.__exit__(None, None, None)


def _logging() -> Back:
    def state(logger: logging.Logger) -> tuple[int, bool, bool, list[logging.Handler]]:
        return logger.level, logger.propagate, logger.disabled, list(logger.handlers)

    known = [
        one for one in (*logging.root.manager.loggerDict.values(), logging.root) if isinstance(one, logging.Logger)
    ]
    before, disabled = [(logger, state(logger)) for logger in known], logging.root.manager.disable

    def back() -> None:
        logging.disable(disabled)
        for logger, (level, propagate, off, handlers) in before:
            logger.setLevel(level)
            logger.propagate, logger.disabled, logger.handlers[:] = propagate, off, handlers

    return back


def _signals() -> Back:
    if threading.current_thread() is not threading.main_thread():
        return lambda: None
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def back() -> None:
        for number, handler in before.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)

    return back


def _draws() -> Back:
    drawn, ours, numpy = random.getstate(), torch.get_rng_state(), sys.modules.get("numpy.random")
    theirs = None if numpy is None else numpy.get_state()

    def back() -> None:
        random.setstate(drawn)
        torch.set_rng_state(ours)
        if numpy is not None:
            numpy.set_state(theirs)

    return back


def _torch() -> Back:
    before = [read() for read, _ in TORCH]

    def back() -> None:
        for (read, write), value in zip(TORCH, before, strict=True):
            if read() != value:  # some import much of torch to set what is set already
                write(value)

    return back


# What torch keeps for the whole process: how it is read and set.
TORCH: tuple[tuple[Callable[[], Any], Callable[[Any], object]], ...] = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_default_device, lambda device: torch.set_default_device(None if device.type == "cpu" else device)),
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    (torch.get_num_threads, torch.set_num_threads),
)


def _matplotlib() -> Back:
    drawing = sys.modules.get("matplotlib")
    if drawing is None:
        os.environ["MPLBACKEND"] = "agg"  # no window; the environment is put back
        return lambda: None
    before = dict.__getitem__(drawing.rcParams, "backend")  # asking the mapping itself would choose one

    def back() -> None:
        if dict.__getitem__(drawing.rcParams, "backend") != before:
            with suppress(Exception):  # a window system that is not there
                drawing.use(before)

    return back


KEPT: tuple[Callable[[], Back], ...] = (
    *(_folder, _python, _environment, _warnings, _logging, _signals, _draws, _torch, _matplotlib),
)
