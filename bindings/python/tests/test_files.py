"""The names, the owners and the permissions of the files of arenas."""

from __future__ import annotations

import os
import pathlib
import pickle
import signal
import tempfile
import unittest
from typing import Any, Callable, List

import shmsync

from .support import Child

OTHER = 54321  # a user that no process runs as


def can_become(uid: int) -> bool:
    """Report whether a child of this process can become another user."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setresuid(uid, uid, uid)
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


class Files(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = directory.name
        os.chmod(self.directory, 0o777)
        self.path = os.path.join(self.directory, "arena")

    def open(self, *args: Any, **options: Any) -> shmsync.Arena:
        a = shmsync.Arena(*args, **options)
        self.addCleanup(a.close)
        return a

    def as_other(self, run: Callable[[], object]) -> str:
        """Return what a function says as another user. The other user then stays in its arenas."""

        def become(c: Child) -> None:
            os.setresuid(OTHER, OTHER, OTHER)
            c.say(str(run()))
            c.hear()

        c = Child(become)
        self.addCleanup(c.end, signal.SIGKILL)
        return c.hear()

    def test_names_of_each_type(self) -> None:
        opened: List[shmsync.Arena] = []
        names: List[Any] = [self.path, self.path.encode(), pathlib.Path(self.path)]
        for name in names:
            opened.append(self.open(name, size=4 << 20))
        shmsync.Sequencer(opened[0], "s").increment()
        for a in opened:
            self.assertEqual(a.name, self.path)
            self.assertEqual(shmsync.Sequencer(a, "s").value, 1)
        wrong: List[Any] = [1, None]
        for name in wrong:
            with self.assertRaises(TypeError):
                shmsync.Arena(name)
        wrong = ["a\0b", b"a\0b"]
        for name in wrong:
            with self.assertRaises(ValueError):
                shmsync.Arena(name)

    def test_a_path_object_without_a_slash_is_a_path(self) -> None:
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.directory)
        self.open(pathlib.Path("arena"), size=4 << 20)
        self.assertTrue(os.path.exists(self.path))

    def test_a_name_that_is_no_text(self) -> None:
        raw = os.fsencode(self.path) + b"\xff"
        a = self.open(os.fsdecode(raw), size=4 << 20)
        self.assertTrue(os.path.exists(raw))
        self.assertEqual(os.fsencode(a.name or ""), raw)
        pickle.loads(pickle.dumps(a)).close()
        a.close()
        shmsync.remove(raw)
        self.assertFalse(os.path.exists(raw))

    @unittest.skipUnless(can_become(OTHER), "needs to become another user")
    def test_an_arena_of_another_user(self) -> None:
        kept: List[shmsync.Arena] = []

        def create() -> str:
            kept.append(shmsync.Arena(self.path, size=4 << 20, mode=0o666))
            os.chmod(self.path, 0o666)
            return self.path

        said = self.as_other(create)
        self.assertEqual(said, self.path)
        with self.assertRaisesRegex(PermissionError, f"owned by uid {OTHER}") as raised:
            shmsync.Arena(self.path)
        self.assertIsInstance(raised.exception, shmsync.NotPermitted)
        a = self.open(self.path, trust_uids=[1, OTHER])
        self.assertEqual(len(a.participants()), 2)
        copied = pickle.loads(pickle.dumps(a))
        self.assertEqual(len(copied.participants()), 2)
        copied.close()
        fd = os.open(self.path, os.O_RDWR)
        self.addCleanup(os.close, fd)
        with self.assertRaises(shmsync.NotPermitted):
            shmsync.Arena.from_fd(fd)
        shmsync.Arena.from_fd(fd, trust_uids={OTHER}).close()
        for wrong in (-1, 1 << 32):
            with self.assertRaises(ValueError):
                shmsync.Arena(self.path, trust_uids=[wrong])

    @unittest.skipUnless(can_become(OTHER), "needs to become another user")
    def test_a_file_without_permission(self) -> None:
        self.open(self.path, size=4 << 20, mode=0o600)

        def denied() -> str:
            try:
                shmsync.Arena(self.path)
            except PermissionError as e:
                return type(e).__name__
            return "opened"

        self.assertEqual(self.as_other(denied), "NotPermitted")


if __name__ == "__main__":
    unittest.main()
