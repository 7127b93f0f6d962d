"""Classes for all tests: arenas for one test each, and children that exchange lines with a test over pipes."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import unittest
import uuid
from typing import Callable, Optional

import shmsync

# After this time a hanging test ends and prints the stacks of all threads. The limit allows for slow machines.
faulthandler.dump_traceback_later(240 * float(os.environ.get("SHMSYNC_TEST_TIMEOUT_SCALE") or 1), exit=True)


class Child:
    """A child of fork that runs a function. The function exchanges lines with the parent."""

    def __init__(self, run: Callable[[Child], object]) -> None:
        down, self._to = os.pipe()
        self._from, up = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._to)
            os.close(self._from)
            self._from, self._to = down, up
            status = 1
            try:
                run(self)
                status = 0
            except BaseException as e:
                self.say(f"failed: {e!r}")
            finally:
                os._exit(status)
        os.close(down)
        os.close(up)
        self._ended = False

    def say(self, line: str) -> None:
        """Write a line to the other side."""
        os.write(self._to, line.encode() + b"\n")

    def hear(self) -> str:
        """Read a line from the other side; "" if it has ended."""
        line = b""
        while not line.endswith(b"\n"):
            byte = os.read(self._from, 1)
            if not byte:
                break
            line += byte
        return line.decode().rstrip("\n")

    def end(self, number: Optional[int] = None) -> int:
        """Send a signal, if there is one, wait for the end, and return the wait status."""
        if self._ended:
            return 0
        if number is not None:
            os.kill(self.pid, number)
        _, status = os.waitpid(self.pid, 0)
        self._ended = True
        os.close(self._to)
        os.close(self._from)
        return status


class ArenaCase(unittest.TestCase):
    """A test with an arena of its own."""

    def setUp(self) -> None:
        self.name = f"python-{uuid.uuid4().hex}"
        self.arena = shmsync.Arena(self.name, size=4 << 20, max_participants=16, label="parent")
        self.addCleanup(self._remove)

    def _remove(self) -> None:
        self.arena.close()
        shmsync.remove(self.name)

    def child(self, run: Callable[[Child, shmsync.Arena], object]) -> Child:
        """Start a child that joins the arena and runs a function."""

        def joined(c: Child) -> None:
            run(c, shmsync.Arena(self.name, label="child"))

        c = Child(joined)
        self.addCleanup(c.end, signal.SIGKILL)
        return c
