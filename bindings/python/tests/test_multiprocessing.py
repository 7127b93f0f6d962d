"""The ends of processes that multiprocessing starts."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import multiprocessing.util
import queue
import signal
import threading
import unittest
from typing import Any, Dict

import shmsync

from .support import ArenaCase, Child

kept: Dict[str, Any] = {}  # keeps an arena open until its process ends


def opens(name: str) -> None:
    """Join the arena, and stay in it."""
    kept["arena"] = shmsync.Arena(name, label="worker")


def uses(m: shmsync.Mutex) -> None:
    with m:
        pass


def job(n: int) -> int:
    assert kept["arena"].this_participant().label == "worker"
    return n


def fails(name: str) -> None:
    opens(name)
    raise SystemExit(3)


def goes_on(name: str) -> None:
    """Return while another thread still needs the arena, and while an executor has a thread that waits for work."""
    opens(name)
    end = threading.Event()

    def late() -> None:
        end.wait()
        done = shmsync.Event(kept["arena"], "done")
        done.set()

    kept["executor"] = concurrent.futures.ThreadPoolExecutor(1)
    kept["executor"].submit(int).result()
    threading.Thread(target=late).start()
    multiprocessing.util.Finalize(None, end.set, exitpriority=-(1 << 80))  # it is the last finalizer


class Ends(ArenaCase):
    def setUp(self) -> None:
        super().setUp()
        self.deaths: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.arena.on_death(lambda who: self.deaths.put(who.pid))

    def assert_no_deaths(self) -> None:
        """Kill a process. The function of on_death must hear of no other death before."""

        def stay(c: Child, _: shmsync.Arena) -> None:
            c.say("in")
            c.hear()

        c = self.child(stay)
        self.assertEqual(c.hear(), "in")
        c.end(signal.SIGKILL)
        self.assertEqual(self.deaths.get(), c.pid)

    def run_process(self, context: Any, status: int, target: Any, *args: Any) -> None:
        p = context.Process(target=target, args=args)
        p.start()
        p.join()
        self.assertEqual(p.exitcode, status)

    def test_a_process_that_returns_leaves_its_arenas(self) -> None:
        m = shmsync.Mutex(self.arena, "m")
        for method in ("fork", "forkserver", "spawn"):
            context: Any = multiprocessing.get_context(method)
            with self.subTest(method):
                self.run_process(context, 0, opens, self.name)
                self.run_process(context, 3, fails, self.name)
                if method != "fork":
                    self.run_process(context, 0, uses, m)
                self.assert_no_deaths()

    def test_the_workers_of_a_pool_leave_their_arenas(self) -> None:
        for method in ("fork", "forkserver"):
            context: Any = multiprocessing.get_context(method)
            with self.subTest(method):
                with context.Pool(2, opens, (self.name,)) as pool:
                    self.assertEqual(pool.map(job, range(4)), [0, 1, 2, 3])
                    pool.close()
                    pool.join()
                with concurrent.futures.ProcessPoolExecutor(2, context, opens, (self.name,)) as executor:
                    self.assertEqual(list(executor.map(job, range(4))), [0, 1, 2, 3])
                self.assert_no_deaths()

    def test_threads_of_a_process_that_returns_may_use_its_arenas(self) -> None:
        for method in ("fork", "forkserver"):
            context: Any = multiprocessing.get_context(method)
            with self.subTest(method):
                done = shmsync.Event(self.arena, "done")
                done.clear()
                self.run_process(context, 0, goes_on, self.name)
                self.assertTrue(done.is_set())
                self.assert_no_deaths()

    def test_a_process_that_had_no_multiprocessing_when_it_joined(self) -> None:
        arena = shmsync.arena
        # As if this process had joined before it imported multiprocessing. The next test expects ends again.
        arena._expects_end = False
        registry: Any = getattr(multiprocessing.util, "_afterfork_registry")
        for key, value in list(registry.items()):
            if value is arena._close_all:
                del registry[key]
        self.run_process(multiprocessing.get_context("fork"), 0, opens, self.name)
        self.assert_no_deaths()


if __name__ == "__main__":
    unittest.main()
