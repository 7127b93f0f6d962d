"""The functions for asyncio in the README."""

from __future__ import annotations

import asyncio
import os
import queue
import re
import threading
import unittest
from typing import Any, Awaitable, Callable, Dict
from unittest import mock

import shmsync

from .support import ArenaCase

README = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "README.md")


class Asyncio(ArenaCase):
    def setUp(self) -> None:
        super().setUp()
        with open(README, encoding="utf-8") as f:
            section = f.read().split("\n## asyncio\n")[1].split("\n## ")[0]
        (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
        self.jobs = shmsync.Queue(self.arena, "jobs", 4, 16)
        self.ledger = shmsync.Mutex(self.arena, "ledger")
        self.changed: asyncio.Queue[bytes]
        self.readme: Dict[str, Any] = {"queue": queue, "jobs": self.jobs, "ledger": self.ledger, "change": self.change}
        exec(compile(code, README, "exec"), self.readme)

    async def change(self, job: bytes) -> None:
        self.assertFalse(self.ledger.acquire(False))
        await self.changed.put(job)

    def run_tasks(self, main: Callable[[], Awaitable[None]]) -> None:
        async def run() -> None:
            self.changed = asyncio.Queue()
            await asyncio.wait_for(main(), 200)

        asyncio.run(run())

    def test_the_loop_runs_while_a_task_waits(self) -> None:
        async def main() -> None:
            self.ledger.acquire()
            task = asyncio.ensure_future(self.readme["work"]())
            await asyncio.sleep(0)
            self.jobs.put(b"job")
            while self.jobs.qsize() != 0:  # the task gets the item, and waits for the lock
                await asyncio.sleep(0)
            self.assertTrue(self.changed.empty())
            self.ledger.release()
            self.assertEqual(await self.changed.get(), b"job")
            await task
            self.assertTrue(self.ledger.acquire(False))

        self.run_tasks(main)
        self.assertTrue(self.jobs.empty())

    def test_a_task_that_is_cancelled_takes_no_item(self) -> None:
        started, go_on = threading.Event(), threading.Event()
        leases = shmsync.Queue.lease

        def late(q: Any, block: bool = True, timeout: Any = None) -> Any:
            started.set()
            go_on.wait()
            return leases(q, block, timeout)

        async def main() -> None:
            with mock.patch.object(shmsync.Queue, "lease", late):
                task = asyncio.ensure_future(self.readme["lease"](self.jobs))
                await asyncio.get_running_loop().run_in_executor(None, started.wait)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                self.jobs.put(b"job")
                go_on.set()  # the thread of the task leases the item now
                await asyncio.get_running_loop().shutdown_default_executor()

        self.run_tasks(main)
        lease = self.jobs.lease(False)
        self.assertEqual((lease.item, lease.attempts), (b"job", 1))
        lease.ack()

    def test_the_item_that_a_cancelled_task_had_goes_back(self) -> None:
        async def main() -> None:
            self.ledger.acquire()
            self.jobs.put(b"job")
            task = asyncio.ensure_future(self.readme["work"]())
            while self.jobs.qsize() != 0:
                await asyncio.sleep(0)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.ledger.release()

        self.run_tasks(main)
        lease = self.jobs.lease(False)
        self.assertEqual((lease.item, lease.attempts), (b"job", 1))
        lease.ack()
        self.assertTrue(self.ledger.acquire(False))

    def test_the_thread_of_a_cancelled_task_ends(self) -> None:
        async def main() -> None:
            task = asyncio.ensure_future(self.readme["lease"](self.jobs))
            await asyncio.sleep(0)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        self.run_tasks(main)  # returns only when the threads have ended
        self.jobs.put(b"job")
        self.assertEqual(self.jobs.get(False), b"job")


if __name__ == "__main__":
    unittest.main()
