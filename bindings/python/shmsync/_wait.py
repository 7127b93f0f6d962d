"""Waits that a signal can end.

A call of the library that waits does not end when a signal comes. Python runs signal handlers only in the main
thread, between two instructions of Python. So the main thread waits in slices. After each slice Python runs the
handlers of the signals that came meanwhile. A handler that raises, such as that of Ctrl-C, ends the wait. Other
threads run no handlers, so they wait without slices.
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import threading
import time
from typing import Any, Callable, List, Optional, Tuple

from ._library import Timespec, check

__all__: List[str] = []

SLICE_NS = 100_000_000

# In seconds. A longer timeout is treated like this one.
_LONGEST = 1e9

_main = threading.main_thread().ident
_get_ident = threading.get_ident


def _forked() -> None:
    global _main
    _main = _get_ident()


# In a child of fork, the thread that called fork is the main thread.
os.register_at_fork(after_in_child=_forked)


def in_main_thread() -> bool:
    """Report whether the calling thread runs signal handlers."""
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


def _wait_into(
    results: List[int],
    plain: Callable[..., int],
    timed: Callable[..., int],
    args: Tuple[Any, ...],
    deadline: Optional[int],
    slices: bool,
) -> None:
    """Wait in a function of the library, and append its result, or that of the last slice, to a list."""
    # The library's call and the store of its result are one instruction of Python, so no handler runs in between.
    while True:
        if deadline is None and not in_main_thread():
            results.extend(itertools.starmap(plain, (args,)))
            return
        until, last = deadline, True
        if in_main_thread():
            end = time.monotonic_ns() + SLICE_NS
            if deadline is None or deadline > end:
                until, last = end, not slices
        assert until is not None
        limit = timespec(until)
        results.extend(itertools.starmap(timed, ((*args, ctypes.byref(limit)),)))
        if results[-1] != errno.ETIMEDOUT or last:
            return
        results.clear()


def wait(plain: Callable[..., int], timed: Callable[..., int], args: Tuple[Any, ...], deadline: Optional[int]) -> int:
    """Wait in a function of the library that takes nothing, and return its result.

    The result is 0 or an errno, ETIMEDOUT if the deadline passed. The function timed takes args and a time; the
    function plain takes only args.
    """
    results: List[int] = []
    _wait_into(results, plain, timed, args, deadline, True)
    return results[-1]


def take(
    tried: Optional[Callable[..., int]],
    plain: Callable[..., int],
    timed: Callable[..., int],
    args: Tuple[Any, ...],
    undo: Callable[[], object],
    block: bool = True,
    timeout: Optional[float] = None,
    slices: bool = True,
) -> bool:
    """Take something by functions of the library, and return True. Return False if that did not succeed in time.

    If a signal handler raises after something was taken, undo gives it back. undo is a function in C, such as a partial
    of one, so that no handler runs before its effect. The function tried, if there is one, never waits. If slices is
    false, the main thread waits for one slice only, and the result after that is False.
    """
    results: List[int] = []
    try:
        if tried is not None:
            results.extend(itertools.starmap(tried, (args,)))
            if results[0] == 0:
                return True  # no handler runs between this line and the caller's next call
        if tried is None or (results[-1] == errno.EBUSY and block):
            _wait_into(results, plain, timed, args, deadline_of(timeout), slices)
        if results[-1] in (errno.EBUSY, errno.ETIMEDOUT):
            return False
        check(results[-1])
        return True
    except BaseException:
        if results and results[-1] == 0:
            undo()
        raise
