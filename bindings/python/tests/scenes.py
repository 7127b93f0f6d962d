"""The Python side of scenes that a Go test directs: python3 -m tests.scenes SCENE ARENA.

A scene writes lines, and reads lines from the test.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
from typing import Callable, Dict

import shmsync
from shmsync import _library

faulthandler.dump_traceback_later(240 * float(os.environ.get("SHMSYNC_TEST_TIMEOUT_SCALE") or 1), exit=True)


class Job(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint64), ("size", ctypes.c_int32 * 3), ("weight", ctypes.c_double), ("last", ctypes.c_bool)]


def say(line: str) -> None:
    print(line, flush=True)


def hear() -> str:
    return sys.stdin.readline().rstrip("\n")


def lock(arena: shmsync.Arena) -> None:
    """Wait for the mutex, print which process died with it, repair, and hold the mutex until death."""
    m = shmsync.Mutex(arena, "m")
    say("waits")
    try:
        m.acquire()
    except shmsync.OwnerDead as e:
        assert e.participant is not None
        say(f"owner died: {e.pid} {e.participant.label}")
        m.recover(lambda: say("repairs"))
        m.acquire()
    say("holds")
    hear()


def interrupted(arena: shmsync.Arena) -> None:
    """Wait for the mutex until Ctrl-C, and then wait for it again."""
    m = shmsync.Mutex(arena, "m")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        say("waits")
        m.acquire()
    except KeyboardInterrupt:
        say("interrupted")
    with m:
        say("holds")


def produce(arena: shmsync.Arena) -> None:
    """Put records into one queue, and byte strings into another."""
    records = shmsync.RecordQueue(arena, "records", Job, 4)
    texts = shmsync.Queue(arena, "texts", 4, 30)
    for i in range(200):
        records.put(Job(1 << 40 | i, (i, -i, 7), i / 4, i == 199))
        texts.put(b"x" * (i % 31))
    say("done")


def lease(arena: shmsync.Arena) -> None:
    """Lease a record, and hold it until death."""
    with shmsync.RecordQueue(arena, "records", Job, 4, create=False).lease() as job:
        say(f"leased {job.id}")
        hear()


def change(arena: shmsync.Arena) -> None:
    """Change half of a Synchronized, and hold it until death."""
    with shmsync.Synchronized(arena, "value", Job, create=False) as v:
        v.id += 100
        say(f"half way, at {v.id}")
        hear()


def conversation(arena: shmsync.Arena) -> None:
    """Do the Python side of the Go test that uses one object of each kind."""
    s = shmsync.Semaphore(arena, "semaphore", create=False)
    e = shmsync.Event(arena, "event", create=False)
    n = shmsync.Sequencer(arena, "sequencer", create=False)
    b = shmsync.Barrier(arena, "barrier", create=False)
    rw = shmsync.RWMutex(arena, "rwmutex", create=False)
    m = shmsync.Mutex(arena, "mutex", create=False)
    c = shmsync.Cond(arena, "cond", m, create=False)
    value = arena.value("value", ctypes.c_uint32 * 2)
    s.acquire(n=2)  # returns when Go has released them
    e.set()
    n.wait(5)
    b.wait()
    with rw.reading():
        say(f"read {value[0]}")
    with c:
        c.wait_for(lambda: value[1] != 0)
        say(f"saw {value[1]}")


def storm(arena: shmsync.Arena) -> None:
    """Increment two numbers under a mutex until death. They are equal while it is free. The third counts for Python."""
    m = shmsync.Mutex(arena, "m")
    counts = arena.value("counts", ctypes.c_uint64 * 3)

    def repair() -> None:
        counts[1] = counts[0]

    said = False
    while True:
        try:
            m.acquire()
        except shmsync.OwnerDead:
            m.recover(repair)
            continue
        assert counts[0] == counts[1], list(counts)
        counts[0] += 1
        counts[1] += 1
        counts[2] += 1
        m.release()
        if not said:
            said = True
            say("counts")


def abi(_: shmsync.Arena) -> None:
    """Print the offsets at which the binding has the fields of the library's structs."""
    say(f"constant SHMSYNC_LAYOUT_VERSION {_library.ABI >> 8}")
    names = {"RawParticipant": "participant", "Lease": "lease", "Handle": "mutex"}
    for kind in vars(_library).values():
        if isinstance(kind, type) and issubclass(kind, ctypes.Structure) and kind.__module__ == _library.__name__:
            if kind in (_library.Options, _library.Timespec):
                continue
            name = names.get(kind.__name__) or kind.__name__[: -len("Options")].lower() + "_options"
            for part in (c for c in kind.__mro__ if "_fields_" in c.__dict__):
                for field in part.__dict__["_fields_"]:
                    say(f"field shmsync_{name}.{field[0]} at {getattr(kind, field[0]).offset} is")
    say("that is all")


SCENES: Dict[str, Callable[[shmsync.Arena], None]] = {
    f.__name__: f for f in (lock, interrupted, produce, lease, change, conversation, storm, abi)
}

if __name__ == "__main__":
    SCENES[sys.argv[1]](shmsync.Arena(sys.argv[2], label="python", create=False))
