"""Waits during which signal handlers run.

A call of the library that waits does not end when a signal comes. Python runs signal handlers only in the main
thread, between two instructions of Python. So the main thread gives the library a function, which the library calls
during the wait about ten times a second, and which runs the handlers of the signals that came meanwhile. A handler
that raises, such as that of Ctrl-C, ends the wait. If no handler raises, the wait keeps its place in the queue. Other
threads run no handlers.
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import threading
import time
from functools import partial
from typing import Any, Callable, Iterator, List, Optional, Tuple

from ._library import P, Timespec, WaitHook, check, function

__all__: List[str] = []

_set_hook = function("wait_hook", WaitHook, P, result=None, keep_gil=True)
_unset_hook = partial(_set_hook, ctypes.cast(0, WaitHook), None)
_call: Callable[..., Any] = partial.__call__

# One element for each wait that the main thread is in, without those in the C module.
waits: List[None] = []

# In seconds. A longer timeout is treated like this one.
_LONGEST = 1e9

_main = threading.main_thread().ident
_get_ident = threading.get_ident


def _forked() -> None:
    global _main
    _main = _get_ident()
    waits.clear()


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


def _handlers(raised: List[BaseException]) -> Iterator[int]:
    """Yield, for each call of the hook, whether the wait has to end. Append the exceptions of handlers to a list."""
    ends = 0
    while True:
        try:
            while True:
                yield ends  # the handlers run when the generator goes on
                ends = 0
        except GeneratorExit:
            raise
        except BaseException as e:
            raised.append(e)
            ends = 1


def _wait_into(
    results: List[int],
    plain: Callable[..., int],
    timed: Callable[..., int],
    args: Tuple[Any, ...],
    deadline: Optional[int],
) -> None:
    """Wait in a function of the library, and append its result to a list. Then raise what a handler has raised."""
    if deadline is None:
        call = partial(plain, *args)
    else:
        limit = timespec(deadline)
        call = partial(timed, *args, ctypes.byref(limit))
    # The library's call and the store of its result are one instruction of Python, so no handler runs in between.
    if not in_main_thread():
        results.extend(itertools.starmap(call, ((),)))
        return
    # The first instruction of a function in Python runs the handlers, and no function could catch what they raise. So
    # the hook is a generator that waits within a try. If another handler raises while it handles an exception, the
    # generator is over, and the wait ends, too.
    raised: List[BaseException] = []
    generator = _handlers(raised)
    next(generator)
    hook = WaitHook(itertools.chain(generator, itertools.repeat(1)).__next__)
    begin = (partial(waits.append, None), partial(_set_hook, hook, None))
    end = (_unset_hook, partial(waits.pop))
    steps = map(_call, (*begin, call, *end))
    try:
        results.extend(itertools.islice(steps, 2, None, 3))  # makes all calls, and stores the result of the third
    except ctypes.ArgumentError:
        for step in end:
            step()
        raise
    if raised:
        raise raised.pop()


def wait(plain: Callable[..., int], timed: Callable[..., int], args: Tuple[Any, ...], deadline: Optional[int]) -> int:
    """Wait in a function of the library that takes nothing, and return its result.

    The result is 0 or an errno, ETIMEDOUT if the deadline passed. The function timed takes args and a time; the
    function plain takes only args.
    """
    results: List[int] = []
    _wait_into(results, plain, timed, args, deadline)
    return results[-1]


def take(
    tried: Optional[Callable[..., int]],
    plain: Callable[..., int],
    timed: Callable[..., int],
    args: Tuple[Any, ...],
    undo: Callable[[], object],
    block: bool = True,
    timeout: Optional[float] = None,
) -> bool:
    """Take something by functions of the library, and return True. Return False if that did not succeed in time.

    If a signal handler raises after something was taken, undo gives it back. undo is a function in C, such as a partial
    of one, so that no handler runs before its effect. The function tried, if there is one, never waits.
    """
    results: List[int] = []
    try:
        if tried is not None:
            results.extend(itertools.starmap(tried, (args,)))
            if results[0] == 0:
                return True  # no handler runs between this line and the caller's next call
        if tried is None or (results[-1] == errno.EBUSY and block):
            _wait_into(results, plain, timed, args, deadline_of(timeout))
        if results[-1] in (errno.EBUSY, errno.ETIMEDOUT):
            return False
        check(results[-1])
        return True
    except BaseException:
        if results and results[-1] == 0:
            undo()
        raise
