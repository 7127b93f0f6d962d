"""Objects that processes wait for: Semaphore, Event, Sequencer, Barrier and Cond."""

from __future__ import annotations

import ctypes
import errno
import time
from functools import partial
from types import TracebackType
from typing import Any, Callable, Optional, Type, TypeVar

from . import _calls
from ._library import EventOptions, P, SemaphoreOptions, SequencerOptions, check, failure_of, function, i64, u64
from ._object import Object
from ._wait import deadline_of, take, wait
from .arena import Arena
from .errors import BrokenBarrier, Incompatible, NotRecoverable, OwnerDead, TimedOut
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

# The memory that each wait for a Cond takes in the arena: nodeSize in docs/abi.md.
_WAIT_NODE_BYTES = 64


def _permit_not_released(code: int, _: object) -> None:
    raise failure_of(code)


_release_leaving = _calls.leaving("semaphore_release", _permit_not_released, 1)


class Semaphore(_calls.Semaphore, Object):
    """Permits that processes acquire in the order of their arrival.

    ``value`` is the number of permits. The permits of a process that dies are returned.

    A ``transferable`` semaphore only counts: any process may release permits, and a death returns none. ``value`` is
    the number of permits that there can be, and ``initial`` of them are available at first. So a counter that begins
    at 0 is ``Semaphore(arena, name, 1000, transferable=True, initial=0)``, if it never exceeds 1000.
    """

    _kind = "semaphore"
    _leave: Callable[..., object] = int
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
        if create and transferable and value < 1:
            raise Incompatible(
                errno.EINVAL,
                f"semaphore {name!r}: value is {value}, but there has to be room for at least 1 permit; "
                "initial=0 makes none of them available at first",
            )
        if initial is not None:
            if initial < 0 or not transferable:
                raise ValueError(f"initial is {initial}, but only a transferable semaphore has one, which is at least 0")
            opts.initial = i64(initial, "initial") if initial > 0 else -1
        self._open(arena, name, create, opts, i64(value, "value"))
        # 0 if it is not known: with create=False, which only finds a semaphore.
        self._limit = value if create else 0

    def _begin(self, arena: Arena, name: Optional[str]) -> None:
        super()._begin(arena, name)
        names = ("semaphore_tryacquire", "semaphore_acquire", "semaphore_timedacquire", "semaphore_release")
        _calls.begin(self, [names], _calls.KEEP_TRY)
        self._leave = partial(_release_leaving, self._ref, 1)

    def _parts(self) -> Any:
        return (self._limit,)

    @classmethod
    def _reopen(cls, arena: Arena, offset: int, *parts: Any) -> Semaphore:
        self = super()._reopen(arena, offset)
        self._limit = parts[0] if parts else 0
        return self

    def acquire(self, block: bool = True, timeout: Optional[float] = None, n: int = 1) -> bool:
        """Acquire n permits, and return True. Return False if that would wait, or takes longer than timeout seconds.

        :class:`Incompatible` if the semaphore never has so many permits. An object that was opened with
        ``create=False``, or by :meth:`at`, does not know that number: with a timeout, it waits until then.
        """
        if self._limit != 0 and n > self._limit:
            self._too_many(n)
        args = (self._ref, _ONE if n == 1 else _I64(i64(n, "n")))
        return take(_tryacquire, _acquire, _timedacquire, args, partial(_release, *args), block, timeout)

    def _too_many(self, n: int) -> None:
        raise Incompatible(errno.EINVAL, f"{self!r}: {n} permits, of {self._limit}")

    def release(self, n: int = 1) -> None:
        """Release n permits. :class:`NotHeld`, with nothing released, if this process does not have so many."""
        check(_release(self._ref, _ONE if n == 1 else _I64(i64(n, "n"))))

    def _release_failed(self, code: int, value: Optional[BaseException]) -> None:
        """Raise the error for a release that returned code."""
        raise failure_of(code)

    def get_value(self) -> int:
        """Return the number of available permits."""
        return int(self._function("free", P, result=_I64)(self._ref))

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exception: object) -> None:
        self._leave(self, *exception)


_calls.use(Semaphore)


class Event(_calls.Event, Object):
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
        self._open(arena, name, create, opts)
        self._know(auto_reset or (name is not None and self._is_auto_reset(arena, name)))

    @staticmethod
    def _is_auto_reset(arena: Arena, name: str) -> bool:
        """Report whether waits reset an existing event. The library refuses an open that asks for another mode."""
        try:
            other = Event(arena, name, auto_reset=True, create=False)
        except Incompatible:
            return False
        other.close()
        return True

    def _begin(self, arena: Arena, name: Optional[str]) -> None:
        super()._begin(arena, name)
        self._know(False)

    def _know(self, auto_reset: bool) -> None:
        """Note whether a wait resets the event. If so, a wait that a signal handler ends sets the event again."""
        self._auto_reset = auto_reset
        undo = "event_set" if auto_reset else None
        wait_set = (None, "event_wait", "event_timedwait", undo)
        _calls.begin(self, [wait_set, (None, "event_wait_reset", "event_timedwait_reset", None)])

    @classmethod
    def at(cls, arena: Arena, offset: int, auto_reset: bool = False) -> Event:
        """Open the event at an offset that another process got from :attr:`offset`.

        ``auto_reset`` says whether the event was created with auto_reset. If that is wrong, a wait that a signal
        handler ends can lose a set.
        """
        return cls._reopen(arena, offset, auto_reset)

    @classmethod
    def _reopen(cls, arena: Arena, offset: int, *parts: Any) -> Event:
        self = super()._reopen(arena, offset)
        self._know(bool(parts and parts[0]))
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
        undo: Callable[[], object] = int
        if self._auto_reset:
            undo = partial(self._function("set"), self._ref)
        return self._wait("wait", timeout, undo)

    def wait_clear(self, timeout: Optional[float] = None) -> bool:
        """Wait until the flag is clear. :class:`Incompatible` if the event is not bidirectional."""
        return self._wait("wait_reset", timeout, int)

    def _wait(self, verb: str, timeout: Optional[float], undo: Callable[[], object]) -> bool:
        call, timed = self._function(verb), self._function("timed" + verb)
        return take(None, call, timed, (self._ref,), undo, timeout=timeout)


_calls.use(Event)


class Sequencer(Object):
    """A counter that only goes up. Processes wait until it reaches a value. ``initial`` is for a new counter."""

    _kind = "sequencer"

    def __init__(
        self, arena: Arena, name: Optional[str] = None, *, initial: int = 0, create: bool = True
    ) -> None:
        self._open(arena, name, create, SequencerOptions(initial=u64(initial, "initial")))

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
        check(self._function("advance", P, _U64, P)(self._ref, u64(value, "value"), ctypes.byref(did)))
        return bool(did.value)

    def wait(self, token: int, timeout: Optional[float] = None) -> bool:
        """Wait until the counter has reached token, and return True. Return False after timeout seconds.

        :class:`Canceled` if the sequencer was stopped, or the waits were canceled, before that.
        """
        call, timed = self._function("wait", P, _U64), self._function("timedwait", P, _U64, P)
        code = wait(call, timed, (self._ref, u64(token, "token")), deadline_of(timeout))
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
        """End all waits with :class:`Canceled`, and set the counter to value, which may be less than the counter."""
        check(self._function("reset", P, _U64)(self._ref, u64(value, "value")))


class Barrier(Object):
    """A point at which a number of parties wait for each other.

    The death of a process that has registered, or whose arrival counts in this phase, breaks the phase: its waits
    raise :class:`BrokenBarrier`, which names the process. ``reset`` begins a new phase of a broken barrier, and does
    nothing else: it ends no waits. Phases have numbers: a process can :meth:`arrive`, and later :meth:`wait_phase`.
    """

    _kind = "barrier"
    _number = _I64

    def __init__(self, arena: Arena, name: Optional[str] = None, parties: int = 1, *, create: bool = True) -> None:
        self._open(arena, name, create, None, i64(parties, "parties"))

    @staticmethod
    def _check(code: int) -> None:
        if code == errno.EOWNERDEAD:
            e = failure_of(code)
            assert isinstance(e, OwnerDead)
            raise BrokenBarrier(code, str(e), e.participant)
        check(code)

    def wait(self, timeout: Optional[float] = None) -> int:
        """Arrive, wait for the other parties, and return the index of the arrival.

        The index is the number of parties that arrived before in this phase: 0 for the first, ``parties - 1`` for the
        last. So exactly one party gets 0, and can do what one of them has to do.

        :class:`TimedOut` after timeout seconds. This does not break the barrier: the arrival counts all the same,
        unless another process has run a completion all that time.
        """
        deadline = deadline_of(timeout)
        phase, index = _U64(), _I64()
        call, timed = self._function("arrive_index", P, P, P), self._function("timedarrive_index", P, P, P, P)
        self._check(wait(call, timed, (self._ref, ctypes.byref(phase), ctypes.byref(index)), deadline))
        if not self._wait_phase(phase.value, deadline):
            raise TimedOut(errno.ETIMEDOUT, f"{self!r}: the other parties have not arrived in time")
        return index.value

    def arrive(self, n: int = 1) -> int:
        """Count n arrivals, and return the number of the phase, for :meth:`wait_phase`.

        The call does not wait for other parties. If another process runs a completion, as programs in Go and C have,
        the call waits for its end.
        """
        phase = _U64()
        call = self._function("arrive", P, _I64, P)
        self._check(wait(call, call, (self._ref, i64(n, "n"), ctypes.byref(phase)), None))
        return phase.value

    def wait_phase(self, phase: int, timeout: Optional[float] = None) -> bool:
        """Wait until a phase is over, and return True. Return False after timeout seconds."""
        return self._wait_phase(phase, deadline_of(timeout))

    def _wait_phase(self, phase: int, deadline: Optional[int]) -> bool:
        call, timed = self._function("wait", P, _U64), self._function("timedwait", P, _U64, P)
        code = wait(call, timed, (self._ref, u64(phase, "phase")), deadline)
        if code == errno.ETIMEDOUT:
            return False
        self._check(code)
        return True

    def arrive_and_drop(self) -> None:
        """Arrive, and reduce the number of parties of all later phases by one. The call does not wait."""
        self._check(self._function("arrive_and_drop")(self._ref))

    def register(self, n: int = 1) -> None:
        """Make this process responsible for n more parties, so that its death breaks the barrier."""
        self._check(self._function("register", P, _I64)(self._ref, i64(n, "n")))

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
        check(self._function("reset", P, _I64, P)(self._ref, i64(parties, "parties"), ctypes.byref(did)))
        return bool(did.value)


class Cond(_calls.Cond, Object):
    """A condition variable with a :class:`Mutex`. ``with cond:`` holds that mutex.

    Another process may change the condition between a notification and the end of the wait. So call :meth:`wait` in a
    loop that checks the condition, or call :meth:`wait_for`.
    """

    _kind = "cond"

    def __init__(self, arena: Arena, name: Optional[str], mutex: Mutex, *, create: bool = True) -> None:
        self._use(mutex)
        self._open(arena, name, create, None)

    def _use(self, mutex: Mutex) -> None:
        if not isinstance(mutex, Mutex):  # the module in C would take its memory for that of a Mutex
            raise TypeError(f"a Cond needs a shmsync.Mutex, not a {type(mutex).__name__}")
        self._mutex = mutex

    def _begin(self, arena: Arena, name: Optional[str]) -> None:
        super()._begin(arena, name)
        _calls.begin(self, [(None, "cond_wait_with", None, "cond_signal")])

    @property
    def _leave(self) -> Callable[..., object]:
        return self._mutex._leave

    @classmethod
    def at(cls, arena: Arena, offset: int, mutex: Any = None) -> Cond:
        """Open the Cond at an offset that another process got from :attr:`offset`, with the same mutex."""
        return cls._reopen(arena, offset, mutex)

    @classmethod
    def _reopen(cls, arena: Arena, offset: int, *parts: Any) -> Cond:
        self = cls.__new__(cls)
        self._use(*parts)
        self._open_at(arena, offset)
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
        call, unless the call could not acquire it again. That is so if it raises :class:`OwnerDead` or
        :class:`NotRecoverable`, or if a signal handler raises while the call waits for the mutex. A ``with`` of this
        object or of the mutex around the call then does not release the mutex, even if its body catches the
        exception. If the body acquires the mutex again, the ``with`` releases it. If a handler raises after a
        notification, another wait is notified.
        """
        try:
            return take(
                None,
                self._function("wait"),
                self._function("timedwait"),
                (self._ref, self._mutex._ref),
                partial(self._function("signal"), self._ref),
                timeout=timeout,
            )
        except (NotRecoverable, OwnerDead):
            self._mutex._statement.lose()
            raise

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
        """Wake the n waits that have lasted longest, or all waits if there are fewer."""
        if n >= self._arena.size // _WAIT_NODE_BYTES:  # no arena of this size has more waits
            self.notify_all()
            return
        for _ in range(n):
            check(self._function("signal")(self._ref))

    def notify_all(self) -> None:
        """Wake all waits."""
        check(self._function("broadcast")(self._ref))


_calls.use(Cond)
