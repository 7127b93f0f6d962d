"""Objects that processes wait for: Semaphore, Event, Sequencer, Barrier and Cond."""

from __future__ import annotations

import ctypes
import errno
import time
from types import TracebackType
from typing import Any, Callable, Optional, Type, TypeVar

from . import _calls
from ._library import EventOptions, P, SemaphoreOptions, SequencerOptions, check, failure_of, function
from ._object import Object
from ._wait import deadline_of, in_main_thread, wait
from .arena import Arena
from .errors import BrokenBarrier, Incompatible, OwnerDead, TimedOut
from .locks import Mutex

__all__ = ["Barrier", "Cond", "Event", "Semaphore", "Sequencer"]

R = TypeVar("R")

_I64 = ctypes.c_int64
_U64 = ctypes.c_uint64

# A call is cheaper without argtypes, and with a number that already is a C object.
_tryacquire = function("semaphore_tryacquire")
_acquire = function("semaphore_acquire")
_timedacquire = function("semaphore_timedacquire")
_release = function("semaphore_release")
_ONE = _I64(1)


class Semaphore(_calls.Calls, Object):
    """Permits that processes acquire in the order of their arrival.

    ``value`` is the number of permits. The permits of a process that dies are returned. A ``transferable`` semaphore
    only counts: any process may release permits, a death returns none, and ``initial`` of its permits are available
    at first.
    """

    _kind = "semaphore"
    _number = _I64

    def __init__(
        self,
        arena: Arena,
        name: Optional[str] = None,
        value: int = 1,
        *,
        transferable: bool = False,
        initial: Optional[int] = None,
        create: bool = True,
    ) -> None:
        opts = SemaphoreOptions(transferable=transferable)
        if initial is not None:
            opts.initial = initial if initial > 0 else -1
        self._open(arena, name, create, opts, value)
        # Not known with create=False, which only finds a semaphore.
        self._value: Optional[int] = value if create else None

    def _begin(self, arena: Arena, name: Optional[str]) -> None:
        super()._begin(arena, name)
        _calls.begin(self, "semaphore_tryacquire", "semaphore_release", True)

    def _parts(self) -> Any:
        return (self._value,)

    @classmethod
    def _reopen(cls, arena: Arena, offset: int, *parts: Any) -> Semaphore:
        self = super()._reopen(arena, offset)
        self._value = parts[0] if parts else None
        return self

    def acquire(self, block: bool = True, timeout: Optional[float] = None, n: int = 1) -> bool:
        """Acquire n permits, and return True. Return False if that would wait, or takes longer than timeout seconds.

        :class:`Incompatible` if the semaphore never has so many permits. An object that was opened with
        ``create=False``, or by :meth:`at`, does not know that number, and waits.
        """
        if self._value is not None and n > self._value:
            raise Incompatible(errno.EINVAL, f"{self!r}: {n} permits, of {self._value}")
        permits = _ONE if n == 1 else _I64(n)
        code: int = _tryacquire(self._ref, permits)
        return True if code == 0 else self._acquire(code, block, timeout, n)

    def _acquire(self, code: int, block: bool, timeout: Optional[float], n: int = 1) -> bool:
        """Acquire n permits after a tryacquire that returned code."""
        if code == errno.EBUSY and block:
            args = (self._ref, _ONE if n == 1 else _I64(n))
            code = wait(_acquire, _timedacquire, args, deadline_of(timeout), lambda: self.release(n))
        if code in (errno.EBUSY, errno.ETIMEDOUT):
            return False
        check(code)
        return True

    def release(self, n: int = 1) -> None:
        """Release n permits. :class:`NotHeld`, with nothing released, if this process does not have so many."""
        code: int = _release(self._ref, _ONE if n == 1 else _I64(n))
        if code != 0:
            self._release_failed(code, None)

    def _release_failed(self, code: int, value: Optional[BaseException]) -> None:
        """Raise the error for a release that returned code."""
        raise failure_of(code)

    def get_value(self) -> int:
        """Return the number of available permits."""
        return int(self._function("free", P, result=_I64)(self._ref))

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


_calls.use(Semaphore)


class Event(Object):
    """A flag that processes set, clear and wait for.

    With ``auto_reset`` each set lets one wait return, and that wait clears the flag. With ``bidirectional`` processes
    can also wait until the flag is clear. ``initially_set`` is for a new event.
    """

    _kind = "event"

    def __init__(
        self,
        arena: Arena,
        name: Optional[str] = None,
        *,
        auto_reset: bool = False,
        bidirectional: bool = False,
        initially_set: bool = False,
        create: bool = True,
    ) -> None:
        opts = EventOptions(auto_reset=auto_reset, bidirectional=bidirectional, set=initially_set)
        self._auto_reset = auto_reset
        self._open(arena, name, create, opts)

    @classmethod
    def _reopen(cls, arena: Arena, offset: int, *parts: Any) -> Event:
        self = super()._reopen(arena, offset)
        self._auto_reset = bool(parts and parts[0])
        return self

    def _parts(self) -> Any:
        return (self._auto_reset,)

    def set(self) -> None:
        """Set the flag."""
        check(self._function("set")(self._ref))

    def clear(self) -> None:
        """Clear the flag."""
        check(self._function("reset")(self._ref))

    def is_set(self) -> bool:
        """Report whether the flag is set."""
        return bool(self._function("is_set")(self._ref))

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Wait until the flag is set, and return True. Return False if that takes longer than timeout seconds."""
        undo = self.set if self._auto_reset else None
        return self._wait("wait", timeout, undo)

    def wait_clear(self, timeout: Optional[float] = None) -> bool:
        """Wait until the flag is clear. :class:`Incompatible` if the event is not bidirectional."""
        return self._wait("wait_reset", timeout, None)

    def _wait(self, verb: str, timeout: Optional[float], undo: Optional[Callable[[], None]]) -> bool:
        call, timed = self._function(verb), self._function("timed" + verb)
        code = wait(call, timed, (self._ref,), deadline_of(timeout), undo)
        if code == errno.ETIMEDOUT:
            return False
        check(code)
        return True


class Sequencer(Object):
    """A counter that only goes up. Processes wait until it reaches a value. ``initial`` is for a new counter."""

    _kind = "sequencer"

    def __init__(
        self, arena: Arena, name: Optional[str] = None, *, initial: int = 0, create: bool = True
    ) -> None:
        self._open(arena, name, create, SequencerOptions(initial=initial))

    @property
    def value(self) -> int:
        """The value of the counter."""
        return int(self._function("value", P, result=_U64)(self._ref))

    def increment(self) -> int:
        """Add 1, wake the processes that waited for the new value, and return that value."""
        value = _U64()
        check(self._function("increment", P, P)(self._ref, ctypes.byref(value)))
        return value.value

    def advance(self, value: int) -> bool:
        """Set the counter to value if the counter is less. Report whether it was."""
        did = ctypes.c_int()
        check(self._function("advance", P, _U64, P)(self._ref, value, ctypes.byref(did)))
        return bool(did.value)

    def wait(self, token: int, timeout: Optional[float] = None) -> bool:
        """Wait until the counter has reached token, and return True. Return False after timeout seconds.

        :class:`Canceled` if the sequencer was stopped, or the waits were canceled, before that.
        """
        call, timed = self._function("wait", P, _U64), self._function("timedwait", P, _U64, P)
        code = wait(call, timed, (self._ref, token), deadline_of(timeout))
        if code == errno.ETIMEDOUT:
            return False
        check(code)
        return True

    def cancel_waiters(self) -> None:
        """End all present waits with :class:`Canceled`."""
        check(self._function("cancel_waiters")(self._ref))

    def stop(self) -> None:
        """End all present and later waits with :class:`Canceled`. The counter still works."""
        check(self._function("stop")(self._ref))

    @property
    def stopped(self) -> bool:
        """Whether the sequencer was stopped."""
        return bool(self._function("stopped")(self._ref))

    def reset(self, value: int = 0) -> None:
        """Set the counter to value, which may be less than the counter. :class:`Busy` if a process waits."""
        check(self._function("reset", P, _U64)(self._ref, value))


class Barrier(Object):
    """A point at which a number of parties wait for each other.

    The death of a process that has registered, or whose arrival counts in this phase, breaks the phase: its waits
    raise :class:`BrokenBarrier`, which names the process. ``reset`` begins a new phase.
    """

    _kind = "barrier"
    _number = _I64

    def __init__(self, arena: Arena, name: Optional[str] = None, parties: int = 1, *, create: bool = True) -> None:
        self._open(arena, name, create, None, parties)

    @staticmethod
    def _check(code: int) -> None:
        if code == errno.EOWNERDEAD:
            e = failure_of(code)
            assert isinstance(e, OwnerDead)
            raise BrokenBarrier(code, str(e), e.participant)
        check(code)

    def wait(self, timeout: Optional[float] = None) -> int:
        """Arrive, wait for the other parties, and return the number of the phase.

        :class:`TimedOut` after timeout seconds. The arrival counts all the same.
        """
        phase = self.arrive()
        if not self.wait_phase(phase, timeout):
            raise TimedOut(errno.ETIMEDOUT, f"{self!r}: the other parties have not arrived in time")
        return phase

    def arrive(self, n: int = 1) -> int:
        """Count n arrivals, and return the number of the phase, for :meth:`wait_phase`."""
        phase = _U64()
        self._check(self._function("arrive", P, _I64, P)(self._ref, n, ctypes.byref(phase)))
        return phase.value

    def wait_phase(self, phase: int, timeout: Optional[float] = None) -> bool:
        """Wait until a phase is over, and return True. Return False after timeout seconds."""
        call, timed = self._function("wait", P, _U64), self._function("timedwait", P, _U64, P)
        code = wait(call, timed, (self._ref, phase), deadline_of(timeout))
        if code == errno.ETIMEDOUT:
            return False
        self._check(code)
        return True

    def arrive_and_drop(self) -> None:
        """Arrive, and reduce the number of parties of all later phases by one. The call does not wait."""
        self._check(self._function("arrive_and_drop")(self._ref))

    def register(self, n: int = 1) -> None:
        """Make this process responsible for n more parties, so that its death breaks the barrier."""
        self._check(self._function("register", P, _I64)(self._ref, n))

    def deregister(self) -> None:
        """Make this process responsible for no party; other processes arrive for its parties."""
        self._check(self._function("deregister")(self._ref))

    @property
    def lost(self) -> int:
        """The number of parties that died since the barrier was created or reset."""
        return int(self._function("lost", P, result=_I64)(self._ref))

    def reset(self, parties: int = 0) -> bool:
        """Begin a new phase of a broken barrier, and report whether this call did it.

        With 0 the barrier goes on with the parties that are left.
        """
        did = ctypes.c_int()
        check(self._function("reset", P, _I64, P)(self._ref, parties, ctypes.byref(did)))
        return bool(did.value)


class Cond(Object):
    """A condition variable with a :class:`Mutex`. ``with cond:`` holds that mutex.

    In the main thread :meth:`wait` may return without a notification, so that Python can handle signals. So call it in
    a loop that checks the condition, or call :meth:`wait_for`.
    """

    _kind = "cond"

    def __init__(self, arena: Arena, name: Optional[str], mutex: Mutex, *, create: bool = True) -> None:
        self._mutex = mutex
        self._open(arena, name, create, None)

    @classmethod
    def _reopen(cls, arena: Arena, offset: int, *parts: Any) -> Cond:
        self = super()._reopen(arena, offset)
        (self._mutex,) = parts
        return self

    def _parts(self) -> Any:
        return (self._mutex,)

    def acquire(self, block: bool = True, timeout: Optional[float] = None) -> bool:
        """Acquire the mutex, as :meth:`Mutex.acquire` does."""
        return self._mutex.acquire(block, timeout)

    def release(self) -> None:
        """Release the mutex."""
        self._mutex.release()

    def __enter__(self) -> bool:
        return self._mutex.__enter__()

    def __exit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self._mutex.__exit__(kind, value, trace)

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Release the mutex, wait for a notification, and acquire the mutex again.

        Return False after timeout seconds without a notification, else True. The process holds the mutex after the
        call, whatever its result, unless it raises :class:`OwnerDead` or :class:`NotRecoverable`.
        """
        deadline = deadline_of(timeout)
        args = (self._ref, self._mutex._ref)
        code = wait(self._function("wait"), self._function("timedwait"), args, deadline, None, slices=False)
        if code == errno.ETIMEDOUT:
            return deadline is None or (in_main_thread() and time.monotonic_ns() < deadline)
        check(code)
        return True

    def wait_for(self, predicate: Callable[[], R], timeout: Optional[float] = None) -> R:
        """Wait until predicate returns a true value, and return it. Return its last value after timeout seconds."""
        deadline = deadline_of(timeout)
        result = predicate()
        while not result:
            left = None if deadline is None else (deadline - time.monotonic_ns()) / 1e9
            if left is not None and left <= 0:
                break
            self.wait(left)
            result = predicate()
        return result

    def notify(self, n: int = 1) -> None:
        """Wake the n waits that have lasted longest."""
        for _ in range(n):
            check(self._function("signal")(self._ref))

    def notify_all(self) -> None:
        """Wake all waits."""
        check(self._function("broadcast")(self._ref))
