"""Locks, the deaths of their holders, and signals."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import gc
import importlib
import io
import os
import pickle
import queue
import signal
import sys
import tempfile
import threading
import unittest
from typing import Any, Callable, List
from unittest import mock

import shmsync
from shmsync import _calls, _library, _wait

from .support import ArenaCase, Child


def hold(c: Child, a: shmsync.Arena) -> None:
    """Hold the mutex m until death."""
    shmsync.Mutex(a, "m").acquire()
    c.say("held")
    c.hear()


class Locks(ArenaCase):
    def killed_holder(self) -> Child:
        c = self.child(hold)
        self.assertEqual(c.hear(), "held")
        return c

    def test_with(self) -> None:
        m = shmsync.Mutex(self.arena, "m")
        with m:
            self.assertFalse(m.acquire(False))
            self.assertFalse(m.acquire(timeout=0.001))
            self.assertFalse(shmsync.Mutex(self.arena, "m").acquire(False))
        self.assertTrue(m.acquire(False))
        m.release()
        with self.assertRaises(shmsync.NotHeld) as e:
            m.release()
        self.assertIn('mutex.unlock "m"', str(e.exception))
        self.assertIsInstance(e.exception, OSError)

    def test_exit_stack(self) -> None:
        a = self.arena
        m, rw, s = shmsync.Mutex(a, "m"), shmsync.RWMutex(a, "rw"), shmsync.Semaphore(a, "s")
        value, q = shmsync.Synchronized(a, "v", ctypes.c_uint64), shmsync.Queue(a, "q")
        q.put(b"x")
        contexts: List[Any] = [m, shmsync.Cond(a, "c", m), s, rw.reading(), rw.writing(), rw.upgradable()]
        for context in [*contexts, value, q.lease()]:
            with contextlib.ExitStack() as stack:
                stack.enter_context(context)
        self.assertTrue(m.acquire(False) and s.acquire(False) and rw.acquire_write(False))
        self.assertIsNotNone(value.begin(0))
        self.assertTrue(q.empty())

    def test_arguments(self) -> None:
        m, s = shmsync.Mutex(self.arena, "m"), shmsync.Semaphore(self.arena, "s", 2)
        with m, s:
            self.assertFalse(m.acquire(block=False))
            self.assertFalse(m.acquire(True, timeout=0))
            self.assertFalse(s.acquire(timeout=0, n=2))
            self.assertTrue(s.acquire(False, None, 1))
            s.release(n=1)
            acquire: Any = m.acquire
            calls: List[Callable[[], object]] = [
                lambda: acquire(False, 0, 1),
                lambda: acquire(False, block=False),
                lambda: acquire(n=1),
            ]
            for call in calls:
                with self.assertRaises(TypeError):
                    call()

    def test_owner_death_names_the_process(self) -> None:
        m = shmsync.Mutex(self.arena, "m")
        c = self.killed_holder()
        caught: List[shmsync.OwnerDead] = []

        def wait() -> None:
            try:
                m.acquire()
            except shmsync.OwnerDead as e:
                caught.append(e)

        t = threading.Thread(target=wait)
        t.start()
        c.end(signal.SIGKILL)
        t.join()
        (e,) = caught
        self.assertEqual(e.pid, c.pid)
        assert e.participant is not None
        self.assertEqual(e.participant.label, "child")
        self.assertIn(f"pid {c.pid}", str(e))
        with self.assertRaises(shmsync.OwnerDead):
            m.check()

        def fail() -> None:
            raise ZeroDivisionError

        with self.assertRaises(ZeroDivisionError):
            m.recover(fail)
        with self.assertRaises(shmsync.NotRecoverable):
            m.acquire()
        repaired: List[int] = []
        m.recover(lambda: repaired.append(1))
        m.recover(lambda: repaired.append(2))  # the mutex is usable, so no repair runs
        self.assertEqual(repaired, [1])
        m.check()
        with m:
            pass

    def test_policy_release(self) -> None:
        m = shmsync.Mutex(self.arena, "m", policy=shmsync.Policy.RELEASE)
        c = self.killed_holder()
        c.end(signal.SIGKILL)
        with m:
            pass
        with self.assertRaises(shmsync.Incompatible):
            shmsync.Mutex(self.arena, "m", policy=shmsync.Policy.REPORT)

    def test_not_found(self) -> None:
        with self.assertRaises(shmsync.NotFound):
            shmsync.Mutex(self.arena, "none", create=False)
        with self.assertRaises(FileNotFoundError):
            shmsync.Arena(self.name + "-none", create=False)

    def test_closed(self) -> None:
        m = shmsync.Mutex(self.arena, "m")
        with self.assertRaises(shmsync.Busy):
            self.arena.delete("m")
        m.close()
        m.close()
        with self.assertRaises(shmsync.Closed):
            m.acquire()
        self.arena.delete("m")
        e = shmsync.Event(self.arena, "e")
        self.arena.close()
        with self.assertRaises(shmsync.Closed):
            e.wait()
        with self.assertRaises(shmsync.Closed):
            shmsync.Mutex(self.arena, "m")

    def test_close_ends_waits(self) -> None:
        m = shmsync.Mutex(self.arena, "m")
        caught: List[BaseException] = []

        def wait() -> None:
            try:
                m.acquire()
            except shmsync.Closed as e:
                caught.append(e)

        m.acquire()
        t = threading.Thread(target=wait)
        t.start()
        self.arena.close()
        t.join()
        self.assertEqual(len(caught), 1)

    def test_sides_belong_to_a_lock(self) -> None:
        side: Any = type(shmsync.RWMutex(self.arena, "rw").reading())
        with self.assertRaises(TypeError):
            with side():
                pass

    def test_rwmutex(self) -> None:
        rw = shmsync.RWMutex(self.arena, "rw")
        with rw.reading():
            self.assertTrue(rw.acquire_read(False))
            self.assertFalse(rw.acquire_write(timeout=0.001))
            rw.release_read()
        with rw.writing():
            self.assertFalse(rw.acquire_read(False))
        with rw.upgradable():
            with rw.reading():
                self.assertFalse(rw.upgrade(False))
            self.assertTrue(rw.upgrade())
            self.assertFalse(rw.acquire_read(False))
            rw.downgrade_to_upgradable()
        with self.assertRaises(shmsync.NotHeld):
            rw.release_write()

        def write(c: Child, a: shmsync.Arena) -> None:
            shmsync.RWMutex(a, "rw").acquire_write()
            c.say("held")
            c.hear()

        c = self.child(write)
        self.assertEqual(c.hear(), "held")
        c.end(signal.SIGKILL)
        with self.assertRaises(shmsync.OwnerDead) as e:
            rw.acquire_read()
        self.assertEqual(e.exception.pid, c.pid)
        rw.recover(lambda: None)
        with rw.writing():
            pass


class Interruptions(ArenaCase):
    """A signal ends waits that consist of several parts."""

    def setUp(self) -> None:
        super().setUp()
        old = signal.signal(signal.SIGALRM, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGALRM, old)
        self.addCleanup(signal.setitimer, signal.ITIMER_REAL, 0)

    @unittest.skipUnless(_calls.built, "needs the module in C: without it, no signal ends the wait for the mutex")
    def test_a_wait_that_gets_its_mutex_no_more(self) -> None:
        m = shmsync.Mutex(self.arena, "m")
        cond = shmsync.Cond(self.arena, "c", m)

        def keep(c: Child, a: shmsync.Arena) -> None:
            with shmsync.Mutex(a, "m"):
                c.say("held")
                c.hear()

        taken: List[bool] = []
        with self.assertRaises(KeyboardInterrupt) as raised:
            with cond:
                c = self.child(keep)

                def watch() -> None:
                    c.hear()  # the child has the mutex
                    signal.setitimer(signal.ITIMER_REAL, 0.15)

                t = threading.Thread(target=watch)
                t.start()
                while True:
                    cond.wait()
        t.join()
        self.assertFalse(m.acquire(False))  # the child holds it, and the with statement has not released it
        c.say("go on")
        with cond:
            taken.append(True)
        self.assertEqual(taken, [True])
        # The same exception says nothing about a later with statement.
        with self.assertRaises(KeyboardInterrupt):
            with m:
                raise raised.exception
        self.assertTrue(m.acquire(False))

    def test_a_notification_of_an_interrupted_wait_passes_on(self) -> None:
        cond = shmsync.Cond(self.arena, "c", shmsync.Mutex(self.arena, "m"))

        def interrupt_and_notify(c: Child, a: shmsync.Arena) -> None:
            theirs = shmsync.Cond(a, "c", shmsync.Mutex(a, "m"))
            c.hear()
            with theirs:  # by now both threads wait
                os.kill(os.getppid(), signal.SIGALRM)
                theirs.notify()

        c = self.child(interrupt_and_notify)
        notified: List[bool] = []

        def wait() -> None:
            with cond:
                c.say("go on")
                notified.append(cond.wait(20))

        t = threading.Thread(target=wait)
        with self.assertRaises(KeyboardInterrupt):
            with cond:
                t.start()
                while True:
                    cond.wait()
        t.join()
        self.assertEqual(notified, [True])

    def test_an_arena_whose_first_participant_takes_long(self) -> None:
        name = self.name + "-slow"

        def first(c: Child) -> None:
            function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)

            def run(*_: object) -> int:
                c.say("begins")
                c.hear()
                return 0

            called = function(run)
            opts = _library.ArenaOptions(on_first=ctypes.cast(called, ctypes.c_void_p).value, size=4 << 20)
            pointer = ctypes.c_void_p()
            code = shmsync.arena._open(name.encode(), ctypes.byref(opts), ctypes.byref(pointer), _library.ABI)
            c.say(f"in: {code}")
            c.hear()

        c = Child(first)
        self.addCleanup(c.end, signal.SIGKILL)
        self.assertEqual(c.hear(), "begins")
        fd = os.open("/dev/shm/" + name, os.O_RDWR)
        self.addCleanup(os.close, fd)
        joins: List[Callable[[], object]] = [lambda: shmsync.Arena(name), lambda: shmsync.Arena.from_fd(fd)]
        for join in joins:
            signal.setitimer(signal.ITIMER_REAL, 0.15)
            with self.assertRaises(KeyboardInterrupt):
                join()
        c.say("go on")
        self.assertEqual(c.hear(), "in: 0")
        a = shmsync.Arena(name)
        self.assertEqual(len(a.participants()), 2)
        a.close()
        c.end(signal.SIGKILL)
        # No opening of this process is left, and the dead process is found to be gone.
        while True:
            try:
                shmsync.remove(name)
                break
            except shmsync.Busy:
                pass


    def test_an_arrival_while_another_process_runs_a_completion(self) -> None:
        class Options(ctypes.Structure):
            _fields_ = [
                ("struct_size", ctypes.c_uint32),
                ("flags", ctypes.c_uint32),
                ("completion", ctypes.c_void_p),
                ("completion_arg", ctypes.c_void_p),
                ("spin_ns", ctypes.c_int64),
            ]

        b = shmsync.Barrier(self.arena, "b", 1)

        def complete(c: Child, a: shmsync.Arena) -> None:
            function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

            def run(_: object) -> None:
                c.say("begins")
                c.hear()

            called = function(run)
            opts = Options(ctypes.sizeof(Options), 0, ctypes.cast(called, ctypes.c_void_p).value)
            theirs = _library.Handle()
            call = _library.released["shmsync_barrier_open"]
            call(a._pointer(), b"b", ctypes.c_int64(1), ctypes.byref(opts), ctypes.byref(theirs))
            _library.released["shmsync_barrier_arrive"](ctypes.byref(theirs), ctypes.c_int64(1), None)
            c.say("ended")
            c.hear()

        c = self.child(complete)
        self.assertEqual(c.hear(), "begins")
        with self.assertRaises(shmsync.TimedOut):
            b.wait(timeout=0.15)
        signal.setitimer(signal.ITIMER_REAL, 0.15)
        with self.assertRaises(KeyboardInterrupt):
            b.arrive()
        c.say("go on")
        self.assertEqual(c.hear(), "ended")
        self.assertEqual(b.arrive(), 1)  # it is the phase after that of the child: none of the two arrivals has counted


class Signals(ArenaCase):
    def test_keyboard_interrupt_ends_a_wait(self) -> None:
        m = shmsync.Mutex(self.arena, "m")

        def wait(c: Child, a: shmsync.Arena) -> None:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            theirs = shmsync.Mutex(a, "m")
            try:
                c.say("waits")
                theirs.acquire()
            except KeyboardInterrupt:
                c.say("interrupted")
            theirs.acquire()
            c.say("acquired")

        with m:
            c = self.child(wait)
            self.assertEqual(c.hear(), "waits")
            os.kill(c.pid, signal.SIGINT)
            self.assertEqual(c.hear(), "interrupted")
        self.assertEqual(c.hear(), "acquired")

    def test_a_handler_that_returns_ends_no_wait(self) -> None:
        m = shmsync.Mutex(self.arena, "m")

        def wait(c: Child, a: shmsync.Arena) -> None:
            signal.signal(signal.SIGUSR1, lambda *_: c.say("handled"))
            theirs = shmsync.Mutex(a, "m")
            c.say("waits")
            theirs.acquire()
            c.say("acquired")

        with m:
            c = self.child(wait)
            self.assertEqual(c.hear(), "waits")
            os.kill(c.pid, signal.SIGUSR1)
            self.assertEqual(c.hear(), "handled")
        self.assertEqual(c.hear(), "acquired")

    def test_what_an_interrupted_call_took_is_given_back(self) -> None:
        old = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, old)
        # The signal comes during this call, which succeeds.
        call = ctypes.CDLL(None)["raise"]
        undone: List[int] = []
        with self.assertRaises(KeyboardInterrupt):
            _wait.take(call, call, call, (int(signal.SIGINT),), functools.partial(undone.append, 1))
        self.assertEqual(undone, [1])


class Processes(ArenaCase):
    def test_a_child_of_fork_opens_the_arena_itself(self) -> None:
        m = shmsync.Mutex(self.arena, "m")

        def use(c: Child) -> None:
            try:
                m.acquire()
            except shmsync.Forked as e:
                c.say(str(e))
            with shmsync.Mutex(shmsync.Arena(self.name), "m"):
                c.say("held")
                c.hear()

        c = Child(use)
        self.addCleanup(c.end, signal.SIGKILL)
        self.assertIn("Open the arena and its objects in the child", c.hear())
        self.assertEqual(c.hear(), "held")
        self.assertFalse(m.acquire(False))
        c.say("go on")
        with m:
            pass

    def test_another_interpreter_of_the_process_is_refused(self) -> None:
        interpreters: Any = None
        for name in ("_xxsubinterpreters", "_interpreters"):
            try:
                interpreters = interpreters or importlib.import_module(name)
            except ImportError:
                pass
        try:
            other = interpreters.create(isolated=False)  # with the same global interpreter lock
        except TypeError:
            other = interpreters.create("legacy")
        read, write = os.pipe()
        program = f"""
import os, sys
sys.path[:] = {sys.path!r}
try:
    import shmsync
except ImportError as e:
    os.write({write}, str(e).encode())
"""
        interpreters.run_string(other, program)
        interpreters.destroy(other)
        os.close(write)
        with os.fdopen(read) as said:
            self.assertIn("main interpreter", said.read())
        with self.assertRaises(queue.Empty):
            shmsync.Queue(self.arena, "q").get(False)

    def test_pickle(self) -> None:
        m = shmsync.Mutex(self.arena, "m")
        anonymous = shmsync.Queue(self.arena, None, 4, 10)
        m2, q2, c2 = pickle.loads(pickle.dumps((m, anonymous, shmsync.Cond(self.arena, "c", m))))
        with c2:
            self.assertFalse(m.acquire(False))
        anonymous.put(b"x")
        self.assertEqual(q2.get(), b"x")
        self.assertEqual(m2.name, "m")
        self.assertIs(m2.arena, q2.arena)

    def test_objects_of_each_kind_can_be_pickled(self) -> None:
        a = self.arena
        objects: List[Any] = [
            shmsync.Mutex(a, "mutex"),
            shmsync.RWMutex(a, "rwmutex"),
            shmsync.Semaphore(a, "semaphore", 3),
            shmsync.Event(a, "event", auto_reset=True),
            shmsync.Sequencer(a, "sequencer"),
            shmsync.Barrier(a, "barrier", 2),
            shmsync.Cond(a, "cond", shmsync.Mutex(a, "mutex")),
            shmsync.Queue(a, "queue", 4, 10),
            shmsync.RecordQueue(a, "records", ctypes.c_uint32, 4),
            shmsync.Synchronized(a, "synchronized", ctypes.c_uint64),
        ]
        for o in objects:
            copied = pickle.loads(pickle.dumps(o))
            self.assertEqual((type(copied), copied.name, copied.offset), (type(o), o.name, o.offset))

    def load(self, data: bytes) -> str:
        """Return what a child that opens pickled objects says of it."""

        def open_it(c: Child) -> None:
            try:
                m = pickle.loads(data)
                c.say(f"opened, and free: {m.acquire(False)}")
            except shmsync.NotFound as e:
                c.say(f"not found: {e}")

        c = Child(open_it)
        said = c.hear()
        c.end()
        return said

    def test_a_pickled_object_is_not_opened_in_another_arena(self) -> None:
        m = shmsync.Mutex(self.arena, "m")
        m.acquire()
        data = pickle.dumps(m)
        self.assertEqual(self.load(data), "opened, and free: False")
        os.unlink("/dev/shm/" + self.name)

        def replace(c: Child) -> None:
            a = shmsync.Arena(self.name, size=4 << 20, max_participants=16)
            c.say(str(shmsync.Mutex(a, "m").offset))

        c = Child(replace)
        self.assertEqual(c.hear(), str(m.offset))
        c.end()
        self.assertRegex(self.load(data), "^not found: .*replaced")

    def test_a_pickled_arena_is_not_found_by_another_working_directory(self) -> None:
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            self.addCleanup(os.chdir, os.getcwd())
            os.chdir(one)
            a = shmsync.Arena("./arena", size=4 << 20)
            m = shmsync.Mutex(a, "m")
            m.acquire()
            os.chdir(two)
            self.assertEqual(self.load(pickle.dumps(m)), "opened, and free: False")
            self.assertEqual(a.name, "./arena")
            a.close()

    def test_a_pickled_object_is_not_another_one_in_its_place(self) -> None:
        m = shmsync.Mutex(self.arena, "m")
        data, offset = pickle.dumps(m), m.offset
        m.close()
        self.arena.delete("m")
        other = shmsync.Mutex(self.arena, "other")
        self.assertEqual(other.offset, offset)
        self.assertRegex(self.load(data), "^not found: .*'m' was deleted")
        shmsync.Event(self.arena, "m")
        self.assertRegex(self.load(data), "^not found: .*'m' was deleted")
        self.assertEqual(self.load(pickle.dumps(other)), "opened, and free: True")

    def test_threads_that_close_an_arena_close_one_opening(self) -> None:
        for _ in range(50):
            other = shmsync.Arena(self.name)
            ready = threading.Barrier(2)

            def close() -> None:
                ready.wait()
                other.close()

            threads = [threading.Thread(target=close) for _ in range(2)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            self.arena.this_participant()  # raises Closed if this opening was closed, too

    def test_a_function_for_deaths_while_threads_open_arenas(self) -> None:
        stop = threading.Event()

        def churn() -> None:
            while not stop.is_set():
                opened = [shmsync.Arena(self.name) for _ in range(20)]
                for arena in opened:
                    arena.close()

        interval = sys.getswitchinterval()
        self.addCleanup(sys.setswitchinterval, interval)
        sys.setswitchinterval(1e-5)
        self.arena.on_death(lambda _: None)
        for _ in range(2):
            t = threading.Thread(target=churn)
            t.start()
            self.addCleanup(t.join)
        self.addCleanup(stop.set)
        for _ in range(20000):
            with self.assertRaisesRegex(RuntimeError, "was called before"):
                self.arena.on_death(lambda _: None)

    def test_a_child_of_fork_gets_no_lock_of_another_thread(self) -> None:
        held, go_on = threading.Event(), threading.Event()

        def hold_lock() -> None:
            with shmsync.arena._lock:
                held.set()
                go_on.wait()

        t = threading.Thread(target=hold_lock)
        t.start()
        held.wait()

        def use(c: Child) -> None:
            signal.setitimer(signal.ITIMER_REAL, 20)
            with shmsync.Arena(self.name) as a:
                a.on_death(lambda _: None)
            c.say("closed")

        c = Child(use)
        go_on.set()
        t.join()
        self.assertEqual(c.hear(), "closed")
        c.end()

    def test_one_function_for_deaths(self) -> None:
        other = shmsync.Arena(self.name)
        self.arena.on_death(lambda _: None)
        with self.assertRaises(RuntimeError):
            other.on_death(lambda _: None)
        other.close()

    def test_what_on_death_keeps(self) -> None:
        def kept() -> int:
            """Count the functions that C can call, and the queues of deaths."""
            kinds = (_library.OnDeath, queue.SimpleQueue)
            gc.collect()
            return sum(type(o) in kinds for o in gc.get_objects())

        with shmsync.Arena(self.name + "-other", size=4 << 20) as other:
            path = other._path
            other.on_death(lambda _: None)
        assert path is not None
        self.addCleanup(shmsync.remove, path)
        before = kept()
        for _ in range(10):
            with shmsync.Arena(self.name + "-other", size=4 << 20) as other:
                other.on_death(lambda _: None)
                for _ in range(10):
                    with self.assertRaises(RuntimeError):
                        other.on_death(lambda _: None)
            del other
        for t in threading.enumerate():
            if t.name == "shmsync-deaths":
                t.join()
        self.assertLessEqual(kept(), before)

    def test_arenas_that_were_passed_are_not_kept(self) -> None:
        before = len(shmsync.arena._by_id)
        for _ in range(5):
            name = self.name + "-passed"
            with shmsync.Arena(name, size=4 << 20) as a:
                data = pickle.dumps(a)
                pickle.loads(data).close()
            shmsync.remove(name)
            del a
        gc.collect()
        self.assertLessEqual(len(shmsync.arena._by_id), before)

    def test_an_arena_that_the_death_watcher_would_close(self) -> None:
        closed: List[int] = []

        def busy(_: object) -> int:
            closed.append(threading.get_ident())
            return errno.EDEADLK if len(closed) == 1 else 0

        done = threading.Event()

        def later(arenas: List[object]) -> None:
            for arena in arenas:
                busy(arena)
            done.set()

        a = shmsync.Arena(self.name)
        with mock.patch.object(shmsync.arena, "_close", busy), mock.patch.object(shmsync.arena, "_close_later", later):
            pointer = a._joined[0]
            del a
            done.wait()
        self.assertEqual(closed[0], threading.get_ident())
        self.assertNotEqual(closed[1], threading.get_ident())
        shmsync.arena._close(pointer)

    def test_participants_and_deaths(self) -> None:
        told: List[shmsync.Participant] = []
        done = threading.Event()

        def on_death(who: shmsync.Participant) -> None:
            told.append(who)
            done.set()

        self.arena.on_death(on_death)
        with self.assertRaises(RuntimeError):
            self.arena.on_death(on_death)
        c = self.child(hold)
        self.assertEqual(c.hear(), "held")
        self.assertEqual({p.label for p in self.arena.participants()}, {"parent", "child"})
        self.assertEqual(self.arena.this_participant().pid, os.getpid())
        c.end(signal.SIGKILL)
        done.wait()
        self.assertEqual([p.pid for p in told], [c.pid])
        self.assertIsNotNone(told[0].died)

    def test_deaths_after_a_function_that_raises(self) -> None:
        told: queue.SimpleQueue[int] = queue.SimpleQueue()
        printed, closed = io.StringIO(), io.StringIO()
        closed.close()
        streams = [printed, closed]

        def on_death(who: shmsync.Participant) -> None:
            told.put(who.pid)
            if streams:
                sys.stderr = streams.pop(0)
                raise SystemExit("on_death ends")

        def stay(c: Child, _: shmsync.Arena) -> None:
            c.say("in")
            c.hear()

        self.addCleanup(setattr, sys, "stderr", sys.stderr)
        self.arena.on_death(on_death)
        for _ in range(3):
            c = self.child(stay)
            self.assertEqual(c.hear(), "in")
            c.end(signal.SIGKILL)
            self.assertEqual(told.get(), c.pid)
        self.assertIn("SystemExit: on_death ends", printed.getvalue())


if __name__ == "__main__":
    unittest.main()
