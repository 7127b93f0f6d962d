"""Locks: Mutex and RWMutex."""

from __future__ import annotations

import ctypes
import errno
from types import TracebackType
from typing import Any, Callable, List, Optional, Type

from . import _calls, _library
from ._library import MutexOptions, P, RWMutexOptions, check, failure_of
from ._object import Object
from ._wait import deadline_of, wait
from .arena import Arena, Policy
from .errors import Error, NotRecoverable, OwnerDead

__all__ = ["Mutex", "RWMutex"]

# These two functions never wait, so they keep the global interpreter lock, which makes them cheaper.
_trylock = _library.function("mutex_trylock", keep_gil=True)
_unlock = _library.function("mutex_unlock", keep_gil=True)


def recover(
    acquire: Callable[[], bool],
    release: Callable[[], None],
    call: Callable[..., int],
    ref: Any,
    repair: Callable[[], object],
) -> None:
    """Recover a lock by a function of the library. If repair raised an exception, raise the same exception."""
    try:
        acquire()  # a signal can end this call, unlike that of the library
    except (OwnerDead, NotRecoverable):
        pass
    else:
        release()
        return
    raised: List[BaseException] = []

    def run(_: object) -> int:
        try:
            repair()
        except BaseException as e:
            raised.append(e)
            return 1
        return 0

    code = call(ref, _library.Repair(run), None)
    if raised:
        raise raised[0]
    check(code)


class Mutex(_calls.Calls, Object):
    """A lock that belongs to a process: one thread may acquire it, and another thread of the process release it.

    It is not recursive. ``with mutex:`` acquires and releases it. If its holder dies, the next call raises
    :class:`OwnerDead`, which names the dead process, until a process calls :meth:`recover`. With
    ``policy=Policy.RELEASE`` the mutex becomes free instead.
    """

    _kind = "mutex"

    def __init__(
        self, arena: Arena, name: Optional[str] = None, *, policy: Policy = Policy.DEFAULT, create: bool = True
    ) -> None:
        self._open(arena, name, create, MutexOptions(policy=policy))

    def _begin(self, arena: Arena, name: Optional[str]) -> None:
        super()._begin(arena, name)
        _calls.begin(self, "mutex_trylock", "mutex_unlock", False)

    def acquire(self, block: bool = True, timeout: Optional[float] = None) -> bool:
        """Acquire the mutex, and return True. Return False if it is held, or still held after timeout seconds."""
        code: int = _trylock(self._ref)
        return True if code == 0 else self._acquire(code, block, timeout)

    def _acquire(self, code: int, block: bool, timeout: Optional[float]) -> bool:
        """Acquire the mutex after a trylock that returned code."""
        if code != errno.EBUSY:
            raise failure_of(code)
        if not block:
            return False
        code = wait(
            self._function("lock"),
            self._function("timedlock"),
            (self._ref,),
            deadline_of(timeout),
            lambda: _unlock(self._ref),
        )
        if code == errno.ETIMEDOUT:
            return False
        check(code)
        return True

    def release(self) -> None:
        """Release the mutex. :class:`NotHeld` if this process does not hold it."""
        code: int = _unlock(self._ref)
        if code != 0:
            self._release_failed(code, None)

    def _release_failed(self, code: int, value: Optional[BaseException]) -> None:
        """Raise the error for a release that returned code, unless the exception of a with statement says more."""
        # Such as the exception of a Cond that could not acquire the mutex again.
        if not isinstance(value, Error):
            raise failure_of(code)

    def __enter__(self) -> bool:
        code: int = _trylock(self._ref)
        return True if code == 0 else self._acquire(code, True, None)

    def __exit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        code: int = _unlock(self._ref)
        if code != 0:
            self._release_failed(code, value)

    def recover(self, repair: Callable[[], object]) -> None:
        """Make the mutex usable after :class:`OwnerDead` or :class:`NotRecoverable`.

        The call waits until the dead process has ended, takes the mutex, calls repair, and releases the mutex. If
        repair raises, the mutex is not recoverable, and the call raises the same exception. A usable mutex is
        acquired and released, and repair is not called.
        """
        recover(self.acquire, self.release, self._function("recover", P, P, P), self._ref, repair)

    def check(self) -> None:
        """Raise what :meth:`acquire` would raise now: nothing if the mutex is free or held."""
        check(self._function("state")(self._ref))


_calls.use(Mutex)


class _Side:
    """One side of an RWMutex for a with statement."""

    def __init__(self, acquire: Callable[[], bool], release: Callable[[], None]) -> None:
        self._acquire = acquire
        self._release = release

    def __enter__(self) -> bool:
        return self._acquire()

    def __exit__(self, *_: object) -> None:
        self._release()


class RWMutex(Object):
    """A lock for several readers or one writer.

    ``with rw.reading():`` reads, ``with rw.writing():`` writes, and ``with rw.upgradable():`` reads beside readers
    while it keeps out writers and other upgradable holds. The death of a reader is not reported. The death of a writer
    is treated as that of the holder of a :class:`Mutex`.
    """

    _kind = "rwmutex"

    def __init__(
        self, arena: Arena, name: Optional[str] = None, *, policy: Policy = Policy.DEFAULT, create: bool = True
    ) -> None:
        self._open(arena, name, create, RWMutexOptions(policy=policy))

    def _get(self, tried: str, plain: str, timed: str, back: str, block: bool, timeout: Optional[float]) -> bool:
        code: int = self._function(tried)(self._ref)
        if code == errno.EBUSY and block:
            undo = self._function(back)
            code = wait(
                self._function(plain),
                self._function(timed),
                (self._ref,),
                deadline_of(timeout),
                lambda: undo(self._ref),
            )
        if code in (errno.EBUSY, errno.ETIMEDOUT):
            return False
        check(code)
        return True

    def acquire_read(self, block: bool = True, timeout: Optional[float] = None) -> bool:
        """Acquire the lock for reading, and return True. Return False if that would wait, or takes longer."""
        return self._get("tryrdlock", "rdlock", "timedrdlock", "rdunlock", block, timeout)

    def release_read(self) -> None:
        """Release a read hold. :class:`NotHeld` if this process has none."""
        check(self._function("rdunlock")(self._ref))

    def acquire_write(self, block: bool = True, timeout: Optional[float] = None) -> bool:
        """Acquire the lock for writing, and return True. Return False if that would wait, or takes longer."""
        return self._get("trylock", "lock", "timedlock", "unlock", block, timeout)

    def release_write(self) -> None:
        """Release the write hold. :class:`NotHeld` if this process does not have it."""
        check(self._function("unlock")(self._ref))

    def acquire_upgradable(self, block: bool = True, timeout: Optional[float] = None) -> bool:
        """Acquire the upgradable hold, and return True. Return False if that would wait, or takes longer."""
        names = ("try_lock_upgradable", "lock_upgradable", "timed_lock_upgradable", "unlock_upgradable")
        return self._get(*names, block, timeout)

    def release_upgradable(self) -> None:
        """Release the upgradable hold. :class:`NotHeld` if this process does not have it."""
        check(self._function("unlock_upgradable")(self._ref))

    def upgrade(self, block: bool = True, timeout: Optional[float] = None) -> bool:
        """Wait until the readers have left, and make the upgradable hold a write hold. False: it stays upgradable."""
        names = ("try_upgrade", "upgrade", "timed_upgrade", "downgrade_to_upgradable")
        return self._get(*names, block, timeout)

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
        return _Side(self.acquire_read, self.release_read)

    def writing(self) -> _Side:
        """Return a context that holds the lock for writing."""
        return _Side(self.acquire_write, self.release_write)

    def upgradable(self) -> _Side:
        """Return a context with the upgradable hold. If its body upgrades, it must downgrade again before its end."""
        return _Side(self.acquire_upgradable, self.release_upgradable)

    def recover(self, repair: Callable[[], object]) -> None:
        """Make the lock usable after the death of a writer, as :meth:`Mutex.recover` does."""
        recover(self.acquire_write, self.release_write, self._function("recover", P, P, P), self._ref, repair)

    def check(self) -> None:
        """Raise what :meth:`acquire_write` would raise now: nothing if the lock is free or held."""
        check(self._function("state")(self._ref))
