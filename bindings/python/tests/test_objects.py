"""Objects that processes wait for, and objects with contents."""

from __future__ import annotations

import copy
import ctypes
import inspect
import pickle
import queue
import signal
import sys
import threading
import unittest
import weakref
from typing import Any, Callable, List
from unittest import mock

import shmsync
from shmsync import _calls

from .support import ArenaCase, Child


def hold_after_notify(c: Child, a: shmsync.Arena) -> None:
    """Wakes the waiters of a Cond, and keeps its mutex until the process is killed."""
    cond = shmsync.Cond(a, "c", shmsync.Mutex(a, "m"))
    c.hear()
    cond.acquire()
    cond.notify_all()
    c.say("held")
    c.hear()


class Pair(ctypes.Structure):
    _fields_ = [("a", ctypes.c_uint64), ("b", ctypes.c_int32 * 2)]


class Waits(ArenaCase):
    def test_semaphore(self) -> None:
        s = shmsync.Semaphore(self.arena, "s", 2)
        with s:
            self.assertEqual(s.get_value(), 1)
            self.assertFalse(s.acquire(False, n=2))
            self.assertFalse(s.acquire(timeout=0.001, n=2))
        with self.assertRaises(shmsync.NotHeld):
            s.release()
        with self.assertRaises(shmsync.Incompatible):
            s.acquire(n=3)

        def take(c: Child, a: shmsync.Arena) -> None:
            shmsync.Semaphore(a, "s", create=False).acquire(n=2)
            c.say("taken")
            c.hear()

        c = self.child(take)
        self.assertEqual(c.hear(), "taken")
        self.assertFalse(s.acquire(False))
        c.end(signal.SIGKILL)
        self.assertTrue(s.acquire(n=2))  # the permits of the dead process came back

    def test_transferable_semaphore(self) -> None:
        s = shmsync.Semaphore(self.arena, "t", 3, transferable=True, initial=0)
        self.assertFalse(s.acquire(False))
        s.release(2)
        self.assertEqual(s.get_value(), 2)

    def test_semaphore_without_a_permit(self) -> None:
        s = shmsync.Semaphore(self.arena, "s", 1)
        for wrong in (0, -1):
            with self.assertRaisesRegex(shmsync.Incompatible, "initial=0 makes none of them available"):
                shmsync.Semaphore(self.arena, "t", wrong, transferable=True)
        with self.assertRaisesRegex(ValueError, "only a transferable semaphore"):
            shmsync.Semaphore(self.arena, "s", 1, initial=1)
        with self.assertRaisesRegex(ValueError, "at least 0"):
            shmsync.Semaphore(self.arena, "t", 1, transferable=True, initial=-1)
        self.assertEqual(s.get_value(), 1)

    def test_errors_say_what_to_do_in_python(self) -> None:
        class Old(ctypes.Structure):
            _fields_ = [("a", ctypes.c_uint64)]

        class New(ctypes.Structure):
            _fields_ = [("a", ctypes.c_double)]

        a = self.arena
        shmsync.RecordQueue(a, "r", Old)
        calls: List[Any] = [
            (lambda: shmsync.Semaphore(a, "x", 0), "create=False opens one that exists"),
            (lambda: shmsync.Barrier(a, "x", 0), "create=False opens one that exists"),
            (lambda: shmsync.Queue(a, "x", 0), "create=False opens one that exists"),
            (lambda: shmsync.RecordQueue(a, "x", Old, 0), "create=False opens one that exists"),
            (lambda: a.block("x", 0), "without a size, the call opens one that exists"),
            (lambda: shmsync.RecordQueue(a, "r", New), "Arena.delete drops its contents"),
        ]
        for call, what in calls:
            with self.assertRaises(shmsync.Incompatible) as e:
                call()
            self.assertIn(what, str(e.exception))
            self.assertNotRegex(str(e.exception), "shmsync_|SHMSYNC_")

    def test_event(self) -> None:
        e = shmsync.Event(self.arena, "e", bidirectional=True)
        self.assertFalse(e.wait(0.001))
        self.assertTrue(e.wait_clear())
        e.set()
        self.assertTrue(e.is_set() and e.wait())
        self.assertFalse(e.wait_clear(0))
        e.clear()
        self.assertFalse(e.is_set())
        auto = shmsync.Event(self.arena, "auto", auto_reset=True, initially_set=True)
        self.assertTrue(auto.wait(0))
        self.assertFalse(auto.wait(0))
        with self.assertRaises(shmsync.Incompatible):
            shmsync.Event(self.arena, "e", auto_reset=True)

    def test_an_event_that_could_not_be_opened(self) -> None:
        class Careless(shmsync.Event):
            def __init__(self, arena: shmsync.Arena, name: str) -> None:
                try:
                    super().__init__(arena, name, create=False)
                except shmsync.NotFound:
                    pass

        e = Careless(self.arena, "none")
        calls: List[Callable[[], object]] = [e.wait, e.wait_clear, e.set]
        for call in calls:
            with self.assertRaises(shmsync.Closed):
                call()

    def test_event_between_processes(self) -> None:
        go, done = shmsync.Event(self.arena, "go"), shmsync.Event(self.arena, "done")

        def answer(_: Child, a: shmsync.Arena) -> None:
            shmsync.Event(a, "go").wait()
            shmsync.Event(a, "done").set()

        self.child(answer)
        go.set()
        self.assertTrue(done.wait())

    def test_sequencer(self) -> None:
        s = shmsync.Sequencer(self.arena, "n", initial=7)
        self.assertEqual((s.value, s.increment()), (7, 8))
        self.assertEqual((s.advance(10), s.advance(9)), (True, False))
        self.assertTrue(s.wait(10))
        self.assertFalse(s.wait(11, 0.001))
        s.reset(1 << 40)
        self.assertEqual(shmsync.Sequencer.at(self.arena, s.offset).value, 1 << 40)
        s.stop()
        self.assertTrue(s.stopped)
        with self.assertRaises(shmsync.Canceled):
            s.wait(1 << 41)

    def test_barrier(self) -> None:
        b = shmsync.Barrier(self.arena, "b", 2)

        def arrive(c: Child, a: shmsync.Arena) -> None:
            theirs = shmsync.Barrier(a, "b", create=False)
            c.say(str(theirs.wait()))
            c.say(str(theirs.wait(20)))
            theirs.register()
            c.say("registered")
            c.hear()

        c = self.child(arrive)
        for timeout in (None, 20):
            index = b.wait(timeout)
            self.assertEqual({index, int(c.hear())}, {0, 1})  # as in multiprocessing, one party gets 0
        self.assertEqual(c.hear(), "registered")
        c.end(signal.SIGKILL)
        with self.assertRaises(shmsync.BrokenBarrier) as e:
            b.wait()
        self.assertIsInstance(e.exception, threading.BrokenBarrierError)
        self.assertEqual(e.exception.pid, c.pid)
        self.assertGreater(b.lost, 0)
        self.assertTrue(b.reset(1))
        b.wait()

    def test_barrier_phases(self) -> None:
        b = shmsync.Barrier(self.arena, "b", 3)
        for phase in range(3):
            self.assertEqual(b.arrive(2), phase)
            self.assertFalse(b.wait_phase(phase, 0))
            self.assertEqual(b.wait(), 2)
            self.assertTrue(b.wait_phase(phase))

    def test_barrier_timeout(self) -> None:
        b = shmsync.Barrier(self.arena, "b", 2)
        with self.assertRaises(TimeoutError):
            b.wait(0.001)
        self.assertEqual(b.wait(), 1)  # the first arrival counts all the same

    def test_cond(self) -> None:
        cond = shmsync.Cond(self.arena, "c", shmsync.Mutex(self.arena, "m"))
        ready = self.arena.block("ready", 1)

        def wait(c: Child, a: shmsync.Arena) -> None:
            theirs = shmsync.Cond(a, "c", shmsync.Mutex(a, "m"))
            value = a.block("ready")
            with theirs:
                c.say("holds")
                theirs.wait_for(lambda: value[0])
            c.say(f"saw {value[0]}")

        c = self.child(wait)
        self.assertEqual(c.hear(), "holds")
        with cond:  # by now the child waits
            ready[0] = 3
            cond.notify()
        self.assertEqual(c.hear(), "saw 3")
        with cond:
            self.assertFalse(cond.wait(0.001))
            self.assertFalse(cond.wait_for(lambda: False, 0.001))
            cond.notify_all()

    def test_a_cond_notifies_as_many_waits_as_there_are(self) -> None:
        cond = shmsync.Cond(self.arena, "c", shmsync.Mutex(self.arena, "m"))

        def wait(c: Child, a: shmsync.Arena) -> None:
            theirs = shmsync.Cond(a, "c", shmsync.Mutex(a, "m"))
            with theirs:
                c.say("holds")
                theirs.wait()
            c.say("woken")
            c.hear()

        for n in (sys.maxsize, 1 << 70, 3):
            children = [self.child(wait) for _ in range(2)]
            for c in children:
                self.assertEqual(c.hear(), "holds")
            with cond:  # by now the children wait
                cond.notify(n)
            for c in children:
                self.assertEqual(c.hear(), "woken")
            with cond:
                cond.notify(n)
                cond.notify(0)
                cond.notify(-sys.maxsize)
                self.assertFalse(cond.wait(0.001))

    def test_cond_by_its_offset(self) -> None:
        m = shmsync.Mutex(self.arena, "m")
        cond = shmsync.Cond.at(self.arena, shmsync.Cond(self.arena, "c", m).offset, m)
        with cond:
            self.assertFalse(m.acquire(False))
            self.assertFalse(cond.wait(0.001))
        wrong: Any = threading.Lock()
        offset = cond.offset
        with self.assertRaises(TypeError):
            shmsync.Cond(self.arena, "c", wrong).acquire()
        with self.assertRaises(TypeError):
            shmsync.Cond.at(self.arena, offset, wrong).acquire()

    def test_cond_loses_its_mutex(self) -> None:
        cond = shmsync.Cond(self.arena, "c", shmsync.Mutex(self.arena, "m"))

        c = self.child(hold_after_notify)

        def wait() -> None:
            with cond:
                c.say("the wait begins")
                while True:
                    cond.wait()

        caught: List[BaseException] = []

        def run() -> None:
            try:
                wait()
            except shmsync.OwnerDead as e:  # not the error of the with statement, which releases what it does not hold
                caught.append(e)

        t = threading.Thread(target=run)
        t.start()
        self.assertEqual(c.hear(), "held")
        c.end(signal.SIGKILL)
        t.join()
        self.assertEqual([e.pid for e in caught if isinstance(e, shmsync.OwnerDead)], [c.pid])

    def test_a_with_statement_that_catches_the_loss_of_its_mutex(self) -> None:
        m = shmsync.Mutex(self.arena, "m")
        cond = shmsync.Cond(self.arena, "c", m)

        def lose() -> None:
            c = self.child(hold_after_notify)
            killer = threading.Thread(target=lambda: (c.hear(), c.end(signal.SIGKILL)))
            c.say("the wait begins")
            killer.start()
            with self.assertRaises(shmsync.OwnerDead):
                while True:
                    cond.wait()
            killer.join()
            m.recover(lambda: None)

        def in_a_thread(f: Callable[[], object]) -> None:
            t = threading.Thread(target=f)
            t.start()
            t.join()

        outers: List[Any] = [cond, m]
        for outer in outers:
            with outer:
                lose()
                in_a_thread(m.acquire)
            self.assertFalse(m.acquire(False))  # the other thread holds it, and the with statement has not released it
            in_a_thread(m.release)
            with outer:
                lose()
                m.acquire()  # the with statement releases it again
            with outer:
                lose()
                with m:
                    self.assertFalse(m.acquire(False))
                m.acquire()
                m.release()
                with cond:
                    self.assertFalse(cond.wait(0.001))
                    lose()
                in_a_thread(m.acquire)
            self.assertFalse(m.acquire(False))
            in_a_thread(m.release)
            with outer:
                self.assertFalse(m.acquire(False))
            self.assertTrue(m.acquire(False))
            m.release()


class Contents(ArenaCase):
    def test_queue(self) -> None:
        q = shmsync.Queue(self.arena, "q", 2, 10)
        q.put(b"")
        q.put(b"0123456789")
        self.assertTrue(q.full())
        with self.assertRaises(queue.Full):
            q.put_nowait(b"x")
        with self.assertRaises(queue.Full):
            q.put(b"x", timeout=0.001)
        self.assertEqual((q.get(), q.get()), (b"", b"0123456789"))
        self.assertTrue(q.empty())
        with self.assertRaises(queue.Empty):
            q.get_nowait()
        with self.assertRaises(queue.Empty):
            q.get(timeout=0.001)
        with self.assertRaises(ValueError):
            q.put(b"x" * (q.max_bytes + 1))
        q.shutdown()
        with self.assertRaises(shmsync.Canceled):
            q.put(b"x")
        with self.assertRaises(shmsync.Canceled):
            q.get()

    def test_queue_between_processes(self) -> None:
        q = shmsync.Queue(self.arena, "q", 2, 10)

        def produce(_: Child, a: shmsync.Arena) -> None:
            theirs = shmsync.Queue(a, "q", 2, 10)
            for i in range(100):
                theirs.put(b"%d" % i)

        self.child(produce)
        self.assertEqual([q.get() for _ in range(100)], [b"%d" % i for i in range(100)])

    def test_lease(self) -> None:
        q = shmsync.Queue(self.arena, "q", 2, 10)

        def lease(c: Child, a: shmsync.Arena) -> None:
            theirs = shmsync.Queue(a, "q", 2, 10).lease()
            c.say(theirs.item.decode())
            c.hear()

        q.put(b"job")
        c = self.child(lease)
        self.assertEqual(c.hear(), "job")
        self.assertEqual(q.qsize(), 0)
        c.end(signal.SIGKILL)
        mine = q.lease()  # the item of the dead process came back
        self.assertEqual((mine.item, mine.attempts), (b"job", 1))
        with self.assertRaises(ZeroDivisionError):
            with mine:
                raise ZeroDivisionError
        with q.lease() as item:
            self.assertEqual(item, b"job")
        self.assertTrue(q.empty())
        with self.assertRaises(shmsync.NotHeld):
            mine.ack()

    @unittest.skipIf(_calls.built, "needs a get in Python: one in C calls no method that a test could replace")
    def test_an_item_that_an_interrupted_get_took_goes_back(self) -> None:
        q = shmsync.Queue(self.arena, "q", 2, 10)

        def fail(*_: object) -> bytes:
            raise KeyboardInterrupt

        q.put(b"x")
        # The item arrives, and a handler raises before the call has acknowledged the item.
        with mock.patch.object(q, "_decode", fail), self.assertRaises(KeyboardInterrupt):
            q._get(True, None)
        self.assertEqual(q.qsize(), 1)
        self.assertEqual(q.get(), b"x")

    def test_a_lease_keeps_its_queue_open(self) -> None:
        shmsync.Queue(self.arena, "q", 2, 10).put(b"x")
        lease = shmsync.Queue(self.arena, "q", 2, 10).lease()
        self.assertEqual(lease.item, b"x")
        lease.nack()
        lease = shmsync.Queue(self.arena, "q", 2, 10).lease()
        lease.ack()
        with self.assertRaises(shmsync.NotHeld):
            lease.nack()
        self.assertTrue(shmsync.Queue(self.arena, "q", 2, 10).empty())

    def test_a_lease_that_is_dropped_goes_back(self) -> None:
        q = shmsync.Queue(self.arena, "q", 2, 10)
        q.put(b"x")
        q.lease()
        self.assertEqual(q.get_nowait(), b"x")

    def test_a_lease_has_no_copy(self) -> None:
        q = shmsync.Queue(self.arena, "q", 2, 10)
        q.put(b"x")
        lease = q.lease()
        copies: List[Callable[[object], object]] = [copy.copy, copy.deepcopy, pickle.dumps]
        for copied in copies:
            with self.assertRaises(TypeError):
                copied(lease)
        lease.ack()

    def test_objects_stay_open_while_a_part_is_used(self) -> None:
        with shmsync.RWMutex(self.arena, "rw").writing():
            self.assertFalse(shmsync.RWMutex(self.arena, "rw").acquire_read(False))
        with shmsync.Mutex(self.arena, "m"):
            with self.assertRaises(shmsync.Busy):
                self.arena.delete("m")
        value = shmsync.Synchronized(self.arena, "v", Pair)
        opened = weakref.ref(value)
        changed = value.begin()
        assert changed is not None
        part = changed.b
        del value, changed
        part[1] = 5
        self.assertIsNotNone(opened())
        del part
        self.assertIsNone(opened())
        v = shmsync.Synchronized(self.arena, "v", Pair)
        v.commit()
        self.assertEqual(v.load().b[1], 5)

    def test_record_queue(self) -> None:
        q = shmsync.RecordQueue(self.arena, "r", Pair, 4)
        q.put(Pair(1 << 40, (2, -3)))
        got = q.get()
        self.assertEqual((got.a, list(got.b)), (1 << 40, [2, -3]))
        with self.assertRaises(shmsync.Incompatible):
            shmsync.Queue(self.arena, "r", 4, 12)
        with self.assertRaises(TypeError):
            shmsync.RecordQueue(self.arena, "p", ctypes.c_char_p)

    def test_synchronized(self) -> None:
        s = shmsync.Synchronized(self.arena, "v", Pair, Pair(10))
        with s as v:
            v.a += 1
        with self.assertRaises(ZeroDivisionError):
            with s as v:
                v.a += 1
                raise ZeroDivisionError
        self.assertEqual((s.load().a, s.commits), (11, 1))

        def change(c: Child, a: shmsync.Arena) -> None:
            with shmsync.Synchronized(a, "v", Pair) as v:
                v.a += 100
                c.say("half way")
                c.hear()

        c = self.child(change)
        self.assertEqual(c.hear(), "half way")
        self.assertEqual(s.load().a, 11)
        self.assertIsNone(s.begin(0.001))
        c.end(signal.SIGKILL)
        s.store(Pair(5))
        self.assertEqual(s.load().a, 5)

    def test_memory(self) -> None:
        block = self.arena.block("b", 100)
        block[99] = 5
        self.assertEqual(bytes(self.arena.block("b"))[98:], b"\0\5")
        with self.assertRaises(shmsync.NotFound):
            self.arena.block("none")
        offset = self.arena.alloc(64)
        self.arena.at(offset, 64)[0] = 1
        with self.assertRaises(ValueError):
            self.arena.at(offset, 1 << 30)
        self.arena.free(offset)
        self.arena.value("v", Pair).b[1] = 4
        self.assertEqual(self.arena.value("v", Pair).b[1], 4)
        self.arena.value("n", ctypes.c_uint64).value = 7
        self.assertEqual(self.arena.value("n", ctypes.c_uint64).value, 7)


class Arguments(ArenaCase):
    """The library would take the low bits of a number that is too large, and a text up to its first NUL."""

    def test_numbers(self) -> None:
        a, large = self.arena, 1 << 64
        sequencer, barrier = shmsync.Sequencer(a, "n"), shmsync.Barrier(a, "b", 2)
        semaphore, event = shmsync.Semaphore(a, "s", 2), shmsync.Event(a, "e")
        offset = a.alloc(64)
        calls: List[Callable[[], object]] = [
            lambda: shmsync.Arena(self.name + "-none", size=large + (4 << 20)),
            lambda: shmsync.Arena(self.name + "-none", max_participants=(1 << 32) + 4),
            lambda: shmsync.Arena(self.name + "-none", mode=(1 << 32) + 0o600),
            lambda: shmsync.Arena.from_fd(1 << 32),
            lambda: shmsync.Mutex(a, "policy", policy=(1 << 32) + 1),  # type: ignore[arg-type]
            lambda: shmsync.RWMutex(a, "policy", policy=(1 << 32) + 1),  # type: ignore[arg-type]
            lambda: shmsync.Semaphore(a, "s2", large + 1),
            lambda: shmsync.Semaphore(a, "s2", 2, transferable=True, initial=large + 1),
            lambda: semaphore.acquire(n=large + 1),
            lambda: semaphore.release(large + 1),
            lambda: shmsync.Queue(a, "q", maxsize=(1 << 32) + 2),
            lambda: shmsync.Queue(a, "q", max_bytes=large + 4),
            lambda: shmsync.Queue(a, "q", max_bytes=-4),
            lambda: shmsync.RecordQueue(a, "q", Pair, (1 << 32) + 2),
            lambda: shmsync.Barrier(a, "b2", large + 1),
            lambda: barrier.arrive(large + 1),
            lambda: barrier.register(large + 1),
            lambda: barrier.reset(large + 1),
            lambda: barrier.wait_phase(-1),
            lambda: shmsync.Sequencer(a, "n2", initial=-1),
            lambda: sequencer.advance(-1),
            lambda: sequencer.wait(large),
            lambda: sequencer.reset(-1),
            lambda: a.alloc(large + 64),
            lambda: a.free(offset + large),
            lambda: a.at(offset + large, 64),
            lambda: a.at(offset, large + 64),
            lambda: a.block("block", large + 16),
            lambda: a.delete_at(offset + large),
            lambda: shmsync.Event.at(a, event.offset + large),
            lambda: event.wait(float("nan")),
        ]
        for call in calls:
            with self.assertRaises(ValueError):
                call()
        self.assertEqual((sequencer.value, semaphore.get_value(), event.is_set()), (0, 2, False))
        with self.assertRaises(shmsync.NotFound):
            a.block("block")
        a.free(offset)

    def test_texts(self) -> None:
        a = self.arena
        calls: List[Callable[[], object]] = [
            lambda: shmsync.Mutex(a, "m\0one"),
            lambda: shmsync.Arena(self.name + "\0"),
            lambda: shmsync.Arena(self.name, label="a\0b"),
            lambda: shmsync.remove(self.name + "\0"),
            lambda: a.block("b\0", 16),
            lambda: a.block("b\0"),
            lambda: a.value("b\0", Pair),
            lambda: a.delete("b\0"),
        ]
        for call in calls:
            with self.assertRaises(ValueError):
                call()

    def test_values(self) -> None:
        class Large(ctypes.Structure):
            _fields_ = [("a", ctypes.c_uint64 * 64)]

        wrong: Any = ctypes.c_uint64(1)
        with self.assertRaises(TypeError):
            shmsync.Synchronized(self.arena, "v", Large, wrong)
        v = shmsync.Synchronized(self.arena, "v", Large)
        with self.assertRaises(TypeError):
            v.store(wrong)
        self.assertEqual(v.commits, 0)
        q = shmsync.Queue(self.arena, "q", 2, 16)
        view: Any = memoryview(b"12345678").cast("I")
        q.put(view)
        self.assertEqual(q.get(), b"12345678")

    def test_help_shows_the_arguments(self) -> None:
        for kind in (
            *(shmsync.Mutex, shmsync.RWMutex, shmsync.Semaphore, shmsync.Event, shmsync.Cond),
            *(shmsync.Queue, shmsync.RecordQueue, shmsync.Synchronized, shmsync.Lease),
        ):
            for name in dir(kind):
                method = inspect.getattr_static(kind, name)
                if name.startswith("_") or not inspect.isroutine(method) or isinstance(method, (classmethod, staticmethod)):
                    continue
                arguments = list(inspect.signature(method).parameters)
                self.assertEqual(arguments[:1], ["self"], f"{kind.__name__}.{name}")
        self.assertEqual(str(inspect.signature(shmsync.RecordQueue.lease)).split(" ->")[0].count("="), 2)

    def test_another_type_is_told_by_field(self) -> None:
        class Old(ctypes.Structure):
            _fields_ = [("begun", ctypes.c_uint64), ("done", ctypes.c_uint64)]

        class New(ctypes.Structure):
            _fields_ = [("begun", ctypes.c_uint64), ("share", ctypes.c_double)]

        kinds: Any = {
            "synchronized": lambda kind: shmsync.Synchronized(self.arena, "synchronized", kind),
            "queue": lambda kind: shmsync.RecordQueue(self.arena, "queue", kind),
            "value": lambda kind: self.arena.value("value", kind),
        }
        for open_it in kinds.values():
            open_it(Old)
            with self.assertRaisesRegex(shmsync.Incompatible, "field share, float64 at 8, .*field done, uint64 at 8"):
                open_it(New)

    def test_types_that_the_library_cannot_name(self) -> None:
        deep: Any = ctypes.c_uint32
        for _ in range(20):
            deep = deep * 1

        class Odd(ctypes.Structure):
            _fields_ = [("a b", ctypes.c_uint32), ("c@d", ctypes.c_uint32)]

        class Long(ctypes.Structure):
            _fields_ = [("x" * 300, ctypes.c_uint32)]

        class Many(ctypes.Structure):
            _fields_ = [(f"field_{i}", ctypes.c_uint32) for i in range(1000)]

        for kind in (deep, Odd, Long, Many):
            name = kind.__name__
            shmsync.Synchronized(self.arena, name, kind)
            shmsync.Synchronized(self.arena, name, kind).load()

    def test_order_of_bytes(self) -> None:
        little = sys.byteorder == "little"
        other: Any = ctypes.BigEndianStructure if little else ctypes.LittleEndianStructure
        same: Any = ctypes.LittleEndianStructure if little else ctypes.BigEndianStructure
        integer: Any = ctypes.c_uint32

        class Swapped(other):  # type: ignore[misc]
            _fields_ = [("a", ctypes.c_uint32)]

        class Native(same):  # type: ignore[misc]
            _fields_ = [("a", ctypes.c_uint32), ("b", ctypes.c_uint8)]

        number = integer.__ctype_be__ if little else integer.__ctype_le__
        shmsync.layout_of(Native)
        swapped: Any = Swapped
        for kind in (swapped, number, swapped * 2):
            with self.assertRaises(TypeError):
                shmsync.layout_of(kind)
