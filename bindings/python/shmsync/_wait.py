"""Waits that a signal ends.

A call of the library that waits does not end when a signal comes. Python runs the handlers of signals in the main
thread only, between two instructions of its own. So the main thread waits in slices: after each one Python runs the
handlers of the signals that came meanwhile, and one that raises, as Ctrl-C does, ends the wait. Other threads run no
handlers, and wait in one piece.
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import threading
import time
from typing import Any, Callable, List, Optional, Tuple

from ._library import Timespec

__all__: List[str] = []

SLICE_NS = 100_000_000

# In seconds. What is longer is not distinguished from it.
_LONGEST = 1e9

_main = threading.main_thread().ident
_get_ident = threading.get_ident


def _forked() -> None:
    global _main
    _main = _get_ident()


# The thread that forks is the main thread of the child.
os.register_at_fork(after_in_child=_forked)


def in_main_thread() -> bool:
    """Report whether the calling thread runs the handlers of signals."""
    return _get_ident() == _main


def deadline_of(timeout: Optional[float]) -> Optional[int]:
    """Return the CLOCK_MONOTONIC time in nanoseconds at which a timeout in seconds ends; None for no end."""
    if timeout is None:
        return None
    if timeout <= 0:
        return 1
    return time.monotonic_ns() + int(min(timeout, _LONGEST) * 1e9)


def timespec(ns: int) -> Timespec:
    """Return ns, a CLOCK_MONOTONIC time, as the library takes it."""
    return Timespec(ns // 1_000_000_000, ns % 1_000_000_000)


def wait(
    plain: Callable[..., int],
    timed: Callable[..., int],
    args: Tuple[Any, ...],
    deadline: Optional[int],
    undo: Optional[Callable[[], object]] = None,
    slices: bool = True,
) -> int:
    """Wait in the library, and return the result of its call: 0 or an errno, ETIMEDOUT if the deadline passed.

    timed takes args and a time, and plain takes args alone. If the handler of a signal raises when the call has
    already succeeded, undo gives back what it took. Without slices the result is ETIMEDOUT after one slice, too.
    """
    # The library's call and the store of its result are one instruction, so that no handler runs between them.
    results: List[int] = []
    try:
        while True:
            if deadline is None and not in_main_thread():
                results.extend(itertools.starmap(plain, (args,)))
                return results[-1]
            until, last = deadline, True
            if in_main_thread():
                end = time.monotonic_ns() + SLICE_NS
                if deadline is None or deadline > end:
                    until, last = end, not slices
            assert until is not None
            limit = timespec(until)
            results.extend(itertools.starmap(timed, ((*args, ctypes.byref(limit)),)))
            if results[-1] != errno.ETIMEDOUT or last:
                return results[-1]
    except BaseException:
        if undo is not None and results and results[-1] == 0:
            undo()
        raise
