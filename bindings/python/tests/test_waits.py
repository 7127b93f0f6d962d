"""A wait of the main thread goes on while signal handlers run."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import unittest
from typing import Callable, List

import shmsync
from shmsync import _library

from .support import ArenaCase, Child


def await_sleep(pid: int) -> None:
    """Wait until the main thread of a process sleeps."""
    while True:
        with open(f"/proc/{pid}/stat") as f:
            if f.read().rpartition(")")[2].split()[0] == "S":
                return
        os.sched_yield()


class Waits(ArenaCase):
    """Each test begins a wait. During the wait a signal handler runs, and lets a child do something meanwhile."""

    def setUp(self) -> None:
        super().setUp()
        self.did: List[str] = []

    def during(self, act: Callable[[shmsync.Arena], object], prepare: Callable[[shmsync.Arena], object] = id) -> Child:
        """Start a child that interrupts the next wait of this thread, and calls act while the handler runs."""
        parent = os.getpid()

        def run(c: Child, a: shmsync.Arena) -> None:
            prepare(a)
            c.say("ready")
            c.hear()
            await_sleep(parent)
            os.kill(parent, signal.SIGUSR1)
            c.hear()
            c.say(f"did {act(a)}")
            c.hear()

        c = self.child(run)
        self.assertEqual(c.hear(), "ready")

        def handle(*_: object) -> None:
            c.say("the handler runs")
            self.did.append(c.hear())

        old = signal.signal(signal.SIGUSR1, handle)
        self.addCleanup(signal.signal, signal.SIGUSR1, old)
        c.say("the wait begins")
        return c

    def test_a_wait_does_not_miss_a_cancellation(self) -> None:
        s = shmsync.Sequencer(self.arena, "s")
        self.during(lambda a: shmsync.Sequencer(a, "s").cancel_waiters())
        with self.assertRaises(shmsync.Canceled):
            s.wait(1, timeout=20)
        self.assertEqual(self.did, ["did None"])

    def test_a_wait_does_not_miss_a_pulse(self) -> None:
        def pulse(a: shmsync.Arena) -> None:
            theirs = shmsync.Event(a, "e")
            theirs.set()
            theirs.clear()

        e = shmsync.Event(self.arena, "e")
        self.during(pulse)
        self.assertTrue(e.wait(20))
        self.assertEqual(self.did, ["did None"])

    def test_readers_do_not_pass_a_writer_that_waits(self) -> None:
        rw = shmsync.RWMutex(self.arena, "rw")
        c = self.during(
            lambda a: shmsync.RWMutex(a, "rw").acquire_read(False), lambda a: shmsync.RWMutex(a, "rw").acquire_read()
        )
        self.assertFalse(rw.acquire_write(timeout=1))
        self.assertEqual(self.did, ["did False"])
        c.say("end")

    def test_others_do_not_pass_an_acquire_of_several_permits(self) -> None:
        s = shmsync.Semaphore(self.arena, "s", 2)
        self.during(
            lambda a: shmsync.Semaphore(a, "s", 2).acquire(False), lambda a: shmsync.Semaphore(a, "s", 2).acquire()
        )
        self.assertFalse(s.acquire(timeout=1, n=2))
        self.assertEqual(self.did, ["did False"])

    def test_a_notification_during_a_handler(self) -> None:
        cond = shmsync.Cond(self.arena, "c", shmsync.Mutex(self.arena, "m"))

        def notify(a: shmsync.Arena) -> None:
            theirs = shmsync.Cond(a, "c", shmsync.Mutex(a, "m"))
            with theirs:
                theirs.notify()

        with cond:
            self.during(notify)
            self.assertTrue(cond.wait(20))
        self.assertEqual(self.did, ["did None"])

    def test_a_handler_ends_no_wait_for_a_notification(self) -> None:
        cond = shmsync.Cond(self.arena, "c", shmsync.Mutex(self.arena, "m"))
        with cond:
            self.during(id)
            self.assertFalse(cond.wait(1))
        self.assertEqual(len(self.did), 1)

    def test_an_open_that_waits_joins_once(self) -> None:
        name = f"{self.name}-first"
        parent = os.getpid()

        def first(c: Child) -> None:
            def interrupt(*_: object) -> int:
                c.say("first")
                while c.hear() == "interrupt":
                    await_sleep(parent)
                    os.kill(parent, signal.SIGUSR1)
                return 0

            on_first = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(interrupt)
            arena = ctypes.c_void_p()
            opts = _library.ArenaOptions(on_first=ctypes.cast(on_first, ctypes.c_void_p).value)
            _library.check(
                _library.function("arena_open_abi", _library.P, _library.P, _library.P, ctypes.c_uint32)(
                    name.encode(), ctypes.byref(opts), ctypes.byref(arena), _library.ABI
                )
            )
            c.say("joined")
            c.hear()

        c = Child(first)
        self.addCleanup(shmsync.remove, name)
        self.addCleanup(c.end, signal.SIGKILL)
        self.assertEqual(c.hear(), "first")
        for handler in (1, 5):

            def handle(*_: object) -> None:
                self.did.append("handled")
                if handler == 1:
                    raise InterruptedError
                c.say("interrupt" if len(self.did) < handler else "go on")

            self.did.clear()
            old = signal.signal(signal.SIGUSR1, handle)
            self.addCleanup(signal.signal, signal.SIGUSR1, old)
            c.say("interrupt")
            if handler == 1:
                with self.assertRaises(InterruptedError):
                    shmsync.Arena(name)
            else:
                with shmsync.Arena(name) as a:
                    self.assertLessEqual(a.this_participant().generation, 2)
            self.assertEqual(len(self.did), handler)
        self.assertEqual(c.hear(), "joined")

    def test_a_handler_may_wait(self) -> None:
        waits, nested = shmsync.Event(self.arena, "waits"), shmsync.Event(self.arena, "nested")
        parent = os.getpid()

        def both(c: Child, a: shmsync.Arena) -> None:
            c.hear()
            await_sleep(parent)
            os.kill(parent, signal.SIGUSR1)
            c.hear()
            await_sleep(parent)
            os.kill(parent, signal.SIGUSR2)  # its handler runs in the wait of the other handler
            c.hear()
            shmsync.Event(a, "waits").set()
            shmsync.Event(a, "nested").set()
            c.hear()

        c = self.child(both)
        order: List[str] = []

        def first(*_: object) -> None:
            c.say("the first handler runs")
            order.append(f"first {nested.wait(20)}")

        def second(*_: object) -> None:
            c.say("the second handler runs")
            order.append("second")

        for number, handler in ((signal.SIGUSR1, first), (signal.SIGUSR2, second)):
            self.addCleanup(signal.signal, number, signal.signal(number, handler))
        c.say("the wait begins")
        self.assertTrue(waits.wait(20))
        self.assertEqual(order, ["second", "first True"])

    def test_what_comes_during_a_handler_that_raises_is_given_back(self) -> None:
        m = shmsync.Mutex(self.arena, "m")
        m.acquire()

        class Stop(Exception):
            pass

        def stop(*_: object) -> None:
            m.release()  # the wait could get the mutex now
            raise Stop

        self.addCleanup(signal.signal, signal.SIGUSR2, signal.signal(signal.SIGUSR2, stop))
        parent = os.getpid()

        def interrupt(c: Child, _: shmsync.Arena) -> None:
            c.hear()
            await_sleep(parent)
            os.kill(parent, signal.SIGUSR2)
            c.hear()

        c = self.child(interrupt)
        c.say("the wait begins")
        with self.assertRaises(Stop):
            m.acquire()
        self.assertTrue(m.acquire(False))
        m.release()

    def test_a_handler_closes_the_arena_of_the_wait(self) -> None:
        a = shmsync.Arena(self.name)
        self.arena.close()
        e = shmsync.Event(a, "e")
        self.during(id)
        handle = signal.getsignal(signal.SIGUSR1)
        assert callable(handle)

        def close(number: int, frame: object) -> None:
            a.close()

        signal.signal(signal.SIGUSR1, close)
        with self.assertRaises(shmsync.Closed):
            e.wait(20)
        with self.assertRaises(shmsync.Closed):
            a.this_participant()
        for t in threading.enumerate():
            if t.name == "shmsync-close":
                t.join()


if __name__ == "__main__":
    unittest.main()
