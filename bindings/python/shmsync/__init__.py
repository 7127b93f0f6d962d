"""Locks and other objects that processes share, and that survive the death of any of them.

An :class:`Arena` is shared memory that processes join, in Python, Go, C and C++. Its objects have names.

>>> arena = Arena("jobs")              # creates or joins /dev/shm/jobs
>>> ledger = Mutex(arena, "ledger")    # the same lock in every process
>>> with ledger:
...     pass

If a process dies while it holds the lock, the next one gets :class:`OwnerDead`, which names the dead process, and
repairs the data with ``ledger.recover(repair)``. ``Ctrl-C`` and other signals end waits in the main thread.
"""

from ._library import version
from .arena import Arena, Policy, remove
from .errors import (
    BrokenBarrier,
    Busy,
    Canceled,
    Closed,
    Corrupt,
    Error,
    Exists,
    Forked,
    Incompatible,
    NoSpace,
    NotFound,
    NotHeld,
    NotPermitted,
    NotRecoverable,
    OwnerDead,
    Participant,
    TimedOut,
)
from .layout import layout_of
from .locks import Mutex, RWMutex
from .queues import Lease, Queue, RecordQueue, Synchronized
from .signals import Barrier, Cond, Event, Semaphore, Sequencer

__all__ = [
    "Arena",
    "Barrier",
    "BrokenBarrier",
    "Busy",
    "Canceled",
    "Closed",
    "Cond",
    "Corrupt",
    "Error",
    "Event",
    "Exists",
    "Forked",
    "Incompatible",
    "Lease",
    "Mutex",
    "NoSpace",
    "NotFound",
    "NotHeld",
    "NotPermitted",
    "NotRecoverable",
    "OwnerDead",
    "Participant",
    "Policy",
    "Queue",
    "RWMutex",
    "RecordQueue",
    "Semaphore",
    "Sequencer",
    "Synchronized",
    "TimedOut",
    "layout_of",
    "remove",
    "version",
]
