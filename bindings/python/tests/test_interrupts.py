"""A signal handler that raises, at any moment, leaves nothing held and loses no item.

Each test runs a body again and again until a signal comes at a random moment, whose handler raises. Then it checks what
the process holds.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import random
import signal
import sys
import threading
import unittest
from typing import Any, Callable, List

import shmsync
from shmsync import _calls

from .support import ArenaCase, Child

ROUNDS = int(os.environ.get("SHMSYNC_TEST_INTERRUPTS") or 100)


class Stop(Exception):
    """What the handler raises."""


class Pair(ctypes.Structure):
    _fields_ = [("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


# Older versions run handlers between more instructions, also around threading.Lock.
@unittest.skipIf(sys.version_info < (3, 11), "needs Python 3.11")
class Interrupts(ArenaCase):
    def setUp(self) -> None:
        super().setUp()

        def stop(*_: object) -> None:
            raise Stop

        old = signal.signal(signal.SIGALRM, stop)
        self.addCleanup(signal.signal, signal.SIGALRM, old)
        self.addCleanup(signal.setitimer, signal.ITIMER_REAL, 0)

    def interrupt(self, body: Callable[[], object]) -> None:
        """Run body until a signal comes."""
        try:
            # Python ignores the exception of a handler that runs in a __del__. So the signal comes again.
            signal.setitimer(signal.ITIMER_REAL, 0.0003 + random.random() * 0.001, 0.5)
            while True:
                body()
        except Stop:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def none_left(self, body: Callable[[], object], left: Callable[[], bool]) -> None:
        """Require that after each interruption the function left finds nothing. It gives back what it finds."""
        found = 0
        for _ in range(ROUNDS):
            self.interrupt(body)
            found += left()
        self.assertEqual(found, 0, f"something was left by {found} of {ROUNDS} interruptions")

    def test_a_lock_of_python(self) -> None:
        # The lock of Python itself passes this check.
        lock = threading.Lock()
        self.with_leaves_nothing(lambda: lock, lock.acquire, lock.release)

    def with_leaves_nothing(
        self, context: Callable[[], Any], acquire: Callable[[bool], object], release: Callable[[], object]
    ) -> None:
        def body() -> None:
            with context():
                pass

        def left() -> bool:
            held = not acquire(False)
            release()
            return held

        self.none_left(body, left)

    def test_mutex(self) -> None:
        m = shmsync.Mutex(self.arena, "m")
        self.with_leaves_nothing(lambda: m, m.acquire, m.release)

    def test_mutex_with_contention(self) -> None:
        m = shmsync.Mutex(self.arena, "m")

        def compete(c: Child, a: shmsync.Arena) -> None:
            theirs = shmsync.Mutex(a, "m")
            c.say("begins")
            while True:
                with theirs:
                    pass

        self.assertEqual(self.child(compete).hear(), "begins")

        def body() -> None:
            with m:
                pass

        def left() -> bool:
            try:
                m.release()
                return True
            except shmsync.NotHeld:
                return False

        self.none_left(body, left)

    def test_semaphore(self) -> None:
        s = shmsync.Semaphore(self.arena, "s")
        self.with_leaves_nothing(lambda: s, s.acquire, s.release)

    def test_rwmutex(self) -> None:
        rw = shmsync.RWMutex(self.arena, "rw")
        self.with_leaves_nothing(rw.writing, rw.acquire_write, rw.release_write)
        self.with_leaves_nothing(rw.upgradable, rw.acquire_upgradable, rw.release_upgradable)

        def body() -> None:
            with rw.reading():
                pass

        def left() -> bool:
            try:
                rw.release_read()
                return True
            except shmsync.NotHeld:
                return False

        self.none_left(body, left)

    def test_cond(self) -> None:
        c = shmsync.Cond(self.arena, "c", shmsync.Mutex(self.arena, "m"))
        self.with_leaves_nothing(lambda: c, c.acquire, c.release)

        def body() -> None:
            with c:
                c.wait(0.00001)

        def left() -> bool:
            held = not c.acquire(False)
            c.release()
            return held

        self.none_left(body, left)

    @unittest.skipUnless(_calls.built, "needs the module in C: the end of a change is a method in Python without it")
    def test_synchronized(self) -> None:
        v = shmsync.Synchronized(self.arena, "v", Pair)

        def left() -> bool:
            held = v.begin(0) is None
            v.abort()
            value = v.load()
            self.assertEqual(value.a, value.b)
            return held

        def body() -> None:
            with v as copy:
                copy.a += 1
                copy.b += 1

        self.none_left(body, left)
        self.none_left(lambda: v.store(Pair(1, 1)), left)

    def acquires(self, acquire: Callable[[], Any], release: Callable[[], object], held: Callable[[], bool]) -> None:
        """Interrupt calls. The list that gets their result is filled before a handler runs."""
        got: List[Any] = []

        def body() -> None:
            got.extend(itertools.starmap(acquire, ((),)))
            release()
            got.clear()

        def left() -> bool:
            lost = held() and not got
            if held():
                release()
            got.clear()
            return lost

        self.none_left(body, left)

    def test_acquire(self) -> None:
        m = shmsync.Mutex(self.arena, "m")

        def held() -> bool:
            free = m.acquire(False)
            if free:
                m.release()
            return not free

        self.acquires(m.acquire, m.release, held)
        s = shmsync.Semaphore(self.arena, "s")
        self.acquires(s.acquire, s.release, lambda: s.get_value() == 0)
        rw = shmsync.RWMutex(self.arena, "rw")

        def written() -> bool:
            free = rw.acquire_write(False)
            if free:
                rw.release_write()
            return not free

        self.acquires(rw.acquire_write, rw.release_write, written)
        v = shmsync.Synchronized(self.arena, "v", Pair)

        def begun() -> bool:
            free = v.begin(0) is not None
            if free:
                v.abort()
            return not free

        self.acquires(v.begin, v.abort, begun)

    def test_auto_reset_event(self) -> None:
        shmsync.Event(self.arena, "e", auto_reset=True, initially_set=True)
        # This opening does not say that waits reset the event.
        e = shmsync.Event(self.arena, "e", create=False)
        self.acquires(e.wait, e.set, lambda: not e.is_set())

    def test_get(self) -> None:
        queues: List[Any] = [shmsync.Queue(self.arena, "q", 4, 16), shmsync.RecordQueue(self.arena, "r", Pair, 4)]
        for q in queues:
            item: Any = b"x" if isinstance(q, shmsync.Queue) else Pair()
            q.put(item)
            got: Any = None

            def body() -> None:
                nonlocal got
                got = q.get()
                q.put(got)
                got = None

            def left() -> bool:
                nonlocal got
                lost = q.empty() and got is None
                while not q.empty():
                    q.get()
                q.put(item)
                got = None
                return lost

            self.none_left(body, left)

    @unittest.skipUnless(_calls.built, "needs the module in C: a frame of a method in Python keeps the lease")
    def test_lease_while_the_exception_is_kept(self) -> None:
        q = shmsync.Queue(self.arena, "q", 4, 16)
        q.put(b"x")
        kept: List[BaseException] = []

        def body() -> None:
            try:
                with q.lease() as got:
                    q.put(got)
            except Stop as e:
                kept.append(e)  # and its traceback
                raise

        def left() -> bool:
            lost = q.empty()
            kept.clear()
            while not q.empty():
                q.get()
            q.put(b"x")
            return lost

        self.none_left(body, left)

    def test_lease(self) -> None:
        q = shmsync.Queue(self.arena, "q", 4, 16)
        q.put(b"x")

        def body() -> None:
            with q.lease() as got:
                q.put(got)

        def left() -> bool:
            lost = q.empty()
            while not q.empty():
                q.get()
            q.put(b"x")
            return lost

        self.none_left(body, left)

    def test_alloc(self) -> None:
        a, size = self.arena, 1 << 18
        got = 0

        def body() -> None:
            nonlocal got
            got = a.alloc(size)
            a.free(got)
            got = 0

        def left() -> bool:
            nonlocal got
            try:
                a.free(got)  # or it has been freed
            except shmsync.Error:
                pass
            got = 0
            try:
                for offset in [a.alloc(size) for _ in range(8)]:
                    a.free(offset)
                return False
            except shmsync.NoSpace:
                return True

        self.none_left(body, left)

    def test_openings(self) -> None:
        def body() -> None:
            shmsync.Mutex(self.arena, "opened").close()

        def left() -> bool:
            shmsync.Mutex(self.arena, "opened").close()
            try:
                self.arena.delete("opened")
                return False
            except shmsync.Busy:
                return True

        self.none_left(body, left)


if __name__ == "__main__":
    unittest.main()
