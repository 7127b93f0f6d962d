"""Locks: Mutex and RWMutex."""

from __future__ import annotations

import ctypes
import operator
import threading
from functools import partial
from types import TracebackType
from typing import Any, Callable, List, Optional, Tuple, Type

from . import _calls, _library
from ._library import MutexOptions, P, RWMutexOptions, check, failure_of
from ._object import Object
from ._wait import take
from .arena import Arena, Policy
from .errors import Error, NotRecoverable, OwnerDead

__all__ = ["Mutex", "RWMutex"]

# These two functions never wait, so they keep the global interpreter lock, which makes them cheaper.
_trylock = _library.function("mutex_trylock", keep_gil=True)
_unlock = _library.function("mutex_unlock", keep_gil=True)
_lock = _library.function("mutex_lock")
_timedlock = _library.function("mutex_timedlock")


def recover(lock: Any, name: str, ref: Any, handle: ctypes.Structure, repair: Callable[[], object]) -> None:
    """Recover a lock by a function of the library. If repair raised an exception, raise the same exception."""
    try:
        with lock:  # a signal can end this wait, unlike the call of the library
            return
    except (OwnerDead, NotRecoverable):
        pass
    if _calls.built:
        check(_calls._fast.recover(_calls.address_of(name), ctypes.addressof(handle), repair))
        return
    raised: List[BaseException] = []

    def run(_: object) -> int:
        try:
            repair()
        except BaseException as e:
            raised.append(e)
            return 1
        return 0

    code = _library.function(name, P, P, P)(ref, _library.Repair(run), None)
    if raised:
        raise raised[0]
    check(code)


def _mutex_not_released(code: int, value: Optional[BaseException]) -> None:
    """Raise the error for a release that returned code, unless the exception of a with statement says more."""
    # For example, the exception of a wait on a Cond that could not acquire the mutex again says more.
    if not isinstance(value, Error):
        raise failure_of(code)


# A handle that is not open. The library refuses to unlock it.
_NO_MUTEX = ctypes.create_string_buffer(64)


class _Statements(threading.local):
    """The with statements of one thread around a mutex, after a wait on a Cond could not acquire the mutex again.

    The outermost of them is the one around that wait.
    """

    def __init__(self, ref: Any) -> None:
        self.ref = ref  # what the innermost statement unlocks
        self.held: List[bool] = []  # whether the mutex is held for each statement


class _Statement:
    """What the with statements of the calling thread unlock: the mutex, or nothing if the thread has lost it.

    It is an argument of a function of the library. All of its parts that such a call uses are functions in C.
    """

    def __init__(self, ref: Any) -> None:
        self._ref = ref
        self._here = _Statements(ref)

    _as_parameter_ = property(operator.attrgetter("_here.ref"))

    @property
    def lost(self) -> bool:
        """Whether the thread has lost the mutex in a with statement that has not ended."""
        return bool(self._here.held)

    def note(self, held: bool) -> None:
        """Note that the mutex is held, or not held, for the innermost statement."""
        here = self._here
        if here.held:
            here.held[-1] = held
            here.ref = self._ref if held else _NO_MUTEX

    def lose(self) -> None:
        """Note that a wait on a Cond could not acquire the mutex again."""
        if not self._here.held:
            self._here.held.append(False)
        self.note(False)

    def enter(self) -> None:
        """Note that an inner statement begins and holds the mutex."""
        self._here.held.append(True)
        self.note(True)

    def leave(self) -> bool:
        """Note that a statement has ended, and return whether the mutex was not held for it."""
        here = self._here
        if not here.held:
            return False
        held = here.held.pop()
        here.ref = self._ref if not here.held or here.held[-1] else _NO_MUTEX
        return not held


_unlock_leaving = _calls.leaving("mutex_unlock", _mutex_not_released, keep_gil=True, lost=_Statement.leave)


class Mutex(_calls.Mutex, Object):
    """A lock that belongs to a process: one thread may acquire it, and another thread of the process release it.

    It is not recursive. ``with mutex:`` acquires and releases it. If its holder dies, the next call raises
    :class:`OwnerDead`, which names the dead process, until a process calls :meth:`recover`. With
    ``policy=Policy.RELEASE`` the mutex becomes free instead.
    """

    _kind = "mutex"
    _leave: Callable[..., object] = int

    def __init__(
        self, arena: Arena, name: Optional[str] = None, *, policy: Policy = Policy.DEFAULT, create: bool = True
    ) -> None:
        self._open(arena, name, create, MutexOptions(policy=Policy(policy)))

    def _begin(self, arena: Arena, name: Optional[str]) -> None:
        super()._begin(arena, name)
        names = ("mutex_trylock", "mutex_lock", "mutex_timedlock", "mutex_unlock")
        _calls.begin(self, [names], _calls.KEEP_TRY | _calls.KEEP_UNDO)
        self._args = (self._ref,)
        self._undo = partial(_unlock, self._ref)
        self._statement = _Statement(self._ref)
        self._leave = partial(_unlock_leaving, self._statement)

    def acquire(self, block: bool = True, timeout: Optional[float] = None) -> bool:
        """Acquire the mutex, and return True. Return False if it is held, or still held after timeout seconds."""
        if not self._statement.lost:
            return take(_trylock, _lock, _timedlock, self._args, self._undo, block, timeout)
        taken = take(_trylock, _lock, _timedlock, self._args, self._undo, block, timeout)
        if taken:
            self._statement.note(True)
        return taken

    def release(self) -> None:
        """Release the mutex. :class:`NotHeld` if this process does not hold it."""
        check(_unlock(self._ref))
        self._statement.note(False)

    def _release_failed(self, code: int, value: Optional[BaseException]) -> None:
        _mutex_not_released(code, value)

    def __enter__(self) -> bool:
        if not self._statement.lost:
            return take(_trylock, _lock, _timedlock, self._args, self._undo)
        taken = take(_trylock, _lock, _timedlock, self._args, self._undo)
        self._statement.enter()
        return taken

    def __exit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self._leave(self, kind, value, trace)

    def recover(self, repair: Callable[[], object]) -> None:
        """Make the mutex usable after :class:`OwnerDead` or :class:`NotRecoverable`.

        The call waits until the dead process has ended, takes the mutex, calls repair, and releases the mutex. If
        repair raises, the mutex is not recoverable, and the call raises the same exception. A usable mutex is
        acquired and released, and repair is not called.
        """
        recover(self, "mutex_recover", self._ref, self._handle, repair)

    def check(self) -> None:
        """Raise what :meth:`acquire` would raise now: nothing if the mutex is free or held."""
        check(self._function("state")(self._ref))


_calls.use(Mutex)


# The four functions of each operation of an RWMutex, in the order of the C module.
_READ = ("tryrdlock", "rdlock", "timedrdlock", "rdunlock")
_WRITE = ("trylock", "lock", "timedlock", "unlock")
_UPGRADABLE = ("try_lock_upgradable", "lock_upgradable", "timed_lock_upgradable", "unlock_upgradable")
_UPGRADE = ("try_upgrade", "upgrade", "timed_upgrade", "downgrade_to_upgradable")


def _side_not_released(code: int, _: object) -> None:
    raise failure_of(code)


class _Side:
    """One side of an RWMutex for a with statement. It keeps the RWMutex open."""

    _leave: Callable[..., object] = int

    def __init__(self, lock: RWMutex, names: Tuple[str, str, str, str]) -> None:
        self._lock = lock
        self._names = names
        self._leave = partial(_SIDES[names], lock._ref)

    def __enter__(self) -> bool:
        return self._lock._take(self._names, True, None)

    def __exit__(self, *exception: object) -> None:
        self._leave(self, *exception)


_calls.use(_Side)
_SIDES = {names: _calls.leaving("rwmutex_" + names[-1], _side_not_released) for names in (_READ, _WRITE, _UPGRADABLE)}


class RWMutex(_calls.RWMutex, Object):
    """A lock for several readers or one writer.

    ``with rw.reading():`` reads, ``with rw.writing():`` writes, and ``with rw.upgradable():`` reads beside readers
    while it keeps out writers and other upgradable holds. The death of a reader is not reported. The death of a writer
    is treated as that of the holder of a :class:`Mutex`.
    """

    _kind = "rwmutex"

    def __init__(
        self, arena: Arena, name: Optional[str] = None, *, policy: Policy = Policy.DEFAULT, create: bool = True
    ) -> None:
        self._open(arena, name, create, RWMutexOptions(policy=Policy(policy)))

    def _begin(self, arena: Arena, name: Optional[str]) -> None:
        super()._begin(arena, name)
        operations = (_READ, _WRITE, _UPGRADABLE, _UPGRADE)
        _calls.begin(self, [tuple("rwmutex_" + n for n in names) for names in operations])  # type: ignore[misc]

    def _take(self, names: Tuple[str, str, str, str], block: bool, timeout: Optional[float]) -> bool:
        tried, plain, timed, back = [self._function(name) for name in names]
        return take(tried, plain, timed, (self._ref,), partial(back, self._ref), block, timeout)

    def acquire_read(self, block: bool = True, timeout: Optional[float] = None) -> bool:
        """Acquire the lock for reading, and return True. Return False if that would wait, or after timeout seconds."""
        return self._take(_READ, block, timeout)

    def release_read(self) -> None:
        """Release a read hold. :class:`NotHeld` if this process has none."""
        check(self._function("rdunlock")(self._ref))

    def acquire_write(self, block: bool = True, timeout: Optional[float] = None) -> bool:
        """Acquire the lock for writing, and return True. Return False if that would wait, or after timeout seconds."""
        return self._take(_WRITE, block, timeout)

    def release_write(self) -> None:
        """Release the write hold. :class:`NotHeld` if this process does not have it."""
        check(self._function("unlock")(self._ref))

    def acquire_upgradable(self, block: bool = True, timeout: Optional[float] = None) -> bool:
        """Acquire the upgradable hold, and return True. Return False if that would wait, or after timeout seconds."""
        return self._take(_UPGRADABLE, block, timeout)

    def release_upgradable(self) -> None:
        """Release the upgradable hold. :class:`NotHeld` if this process does not have it."""
        check(self._function("unlock_upgradable")(self._ref))

    def upgrade(self, block: bool = True, timeout: Optional[float] = None) -> bool:
        """Wait until the readers have left, make the upgradable hold a write hold, and return True.

        Return False if that would wait, or after timeout seconds. The hold is upgradable then, as before.
        """
        return self._take(_UPGRADE, block, timeout)

    def downgrade(self) -> None:
        """Make the write hold a read hold. No writer gets the lock in between."""
        check(self._function("downgrade")(self._ref))

    def downgrade_to_upgradable(self) -> None:
        """Make the write hold an upgradable hold."""
        check(self._function("downgrade_to_upgradable")(self._ref))

    def downgrade_to_read(self) -> None:
        """Make the upgradable hold a read hold."""
        check(self._function("downgrade_to_read")(self._ref))

    def reading(self) -> _Side:
        """Return a context that holds the lock for reading."""
        return _Side(self, _READ)

    def writing(self) -> _Side:
        """Return a context that holds the lock for writing."""
        return _Side(self, _WRITE)

    def upgradable(self) -> _Side:
        """Return a context with the upgradable hold. If its body upgrades, it must downgrade again before its end."""
        return _Side(self, _UPGRADABLE)

    def recover(self, repair: Callable[[], object]) -> None:
        """Make the lock usable after the death of a writer, as :meth:`Mutex.recover` does."""
        recover(self.writing(), "rwmutex_recover", self._ref, self._handle, repair)

    def check(self) -> None:
        """Raise what :meth:`acquire_write` would raise now: nothing if the lock is free or held."""
        check(self._function("state")(self._ref))


_calls.use(RWMutex)
