"""The exceptions of this package.

Every exception is an :class:`Error`. An error of an object always means that the call took nothing: the lock is
not held, and no item was consumed.
"""

from __future__ import annotations

import datetime
import errno
import threading
from dataclasses import dataclass
from typing import Dict, Optional, Type

__all__ = [
    "BrokenBarrier",
    "Busy",
    "Canceled",
    "Closed",
    "Corrupt",
    "Error",
    "Exists",
    "Forked",
    "Incompatible",
    "NotFound",
    "NotHeld",
    "NotPermitted",
    "NotRecoverable",
    "NoSpace",
    "OwnerDead",
    "Participant",
    "TimedOut",
]


@dataclass(frozen=True)
class Participant:
    """One membership of a process in an arena, in the present or in the past.

    ``slot`` and ``generation`` identify it. ``pid`` is the process ID in the PID namespace of that process, and
    ``label`` is the name that it gave itself for people. ``died_ns`` is the time of its death in nanoseconds since
    1970, or 0 if it is alive or the time is not known.
    """

    slot: int
    generation: int
    pid: int
    label: str
    died_ns: int = 0

    @property
    def died(self) -> Optional[datetime.datetime]:
        """The time of the death in UTC, or None if the participant is alive or the time is not known."""
        if self.died_ns == 0:
            return None
        return datetime.datetime.fromtimestamp(self.died_ns / 1e9, datetime.timezone.utc)

    def __str__(self) -> str:
        return f"{self.label} (pid {self.pid})"


class Error(OSError):
    """A call of the library failed. ``errno`` is its result, and ``str()`` is what the library says about it."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.text = text

    def __str__(self) -> str:
        return self.text


class _Death(Error):
    """An error that the death of a process caused.

    ``participant`` is that process, or None if the library no longer knows it.
    """

    def __init__(self, code: int, text: str, participant: Optional[Participant] = None) -> None:
        super().__init__(code, text)
        self.participant = participant

    @property
    def pid(self) -> Optional[int]:
        """The process ID of the dead process, or None if it is not known."""
        return None if self.participant is None else self.participant.pid


class OwnerDead(_Death):
    """A process died while it held the object. The caller does not hold the object.

    No call gets the object until a process repairs it with ``recover``.
    """


class NotRecoverable(_Death):
    """A repair of the object failed. Only another ``recover`` makes the object usable again."""


class BrokenBarrier(OwnerDead, threading.BrokenBarrierError):
    """A process that belonged to the barrier died before it arrived."""


class Canceled(Error):
    """The object was stopped or shut down, or its waits were canceled."""


class TimedOut(Error, TimeoutError):
    """The time limit passed. Only calls without a result of their own raise it; others return False."""


class Closed(Error):
    """This process has closed the object or its arena."""


class Forked(Error):
    """The process is a child of ``fork`` and uses an arena of its parent.

    A child is no participant of the arena. It opens the arena and the objects itself.
    """


class NotHeld(Error):
    """The process released something that it does not hold. Nothing has changed."""


class NotPermitted(Error, PermissionError):
    """The process may not open or remove the file, or the file belongs to a user whom the process does not trust."""


class Corrupt(Error):
    """A peer wrote bytes into the object that no correct program writes."""


class Incompatible(Error, ValueError):
    """The file is no arena, the object has another kind or other options, or an argument is invalid."""


class NotFound(Error, FileNotFoundError):
    """The arena or the object does not exist."""


class Exists(Error, FileExistsError):
    """The object exists already."""


class Busy(Error):
    """A participant uses the arena or the object that was to be removed or reset."""


class NoSpace(Error):
    """The arena has no room for the object or for the wait."""


_BY_ERRNO: Dict[int, Type[Error]] = {
    errno.EOWNERDEAD: OwnerDead,
    errno.ENOTRECOVERABLE: NotRecoverable,
    errno.ECANCELED: Canceled,
    errno.ETIMEDOUT: TimedOut,
    errno.EBADF: Closed,
    errno.ENOTCONN: Forked,
    errno.EPERM: NotHeld,
    errno.EACCES: NotPermitted,
    errno.EPROTO: Corrupt,
    errno.EINVAL: Incompatible,
    errno.EPROTONOSUPPORT: Incompatible,
    errno.ENOENT: NotFound,
    errno.EEXIST: Exists,
    errno.EBUSY: Busy,
    errno.ENOSPC: NoSpace,
}

_IN_A_CHILD = (
    ". A child of fork did not join the arena of its parent. Open the arena and its objects in the child, or give "
    "them to the process as arguments with the start method 'spawn' of multiprocessing"
)


# What the library says about its functions in C, and what to do in Python instead.
_HINTS = {
    "shmsync_barrier_attach opens one that exists": "create=False opens one that exists",
    "shmsync_block_attach opens one that exists": "without a size, the call opens one that exists",
    "shmsync_queue_attach opens one that exists": "create=False opens one that exists",
    "shmsync_semaphore_attach opens one that exists": "create=False opens one that exists",
    "shmsync_delete drops its contents": "Arena.delete drops its contents",
    "SHMSYNC_RECREATE_UNCLEAN replaces it": "shmsync.remove removes it",
    "the function of shmsync_wait_hook opens it": "a signal handler opens it",
}


def make(code: int, text: str, participant: Optional[Participant], of_file: bool = False) -> Error:
    """Return the exception for a result of the library. For EOWNERDEAD the participant is the dead one.

    of_file says whether the call was about the file of an arena.
    """
    kind = _BY_ERRNO.get(code, Error)
    if of_file and code == errno.EPERM:
        kind = NotPermitted
    for hint, here in _HINTS.items():
        text = text.replace(hint, here)
    if kind is Forked:
        text += _IN_A_CHILD
    if issubclass(kind, _Death):
        return kind(code, text, participant)
    return kind(code, text)
