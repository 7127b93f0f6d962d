"""Arenas: shared memory that processes join, and the bytes in it."""

from __future__ import annotations

import _thread
import atexit
import contextlib
import ctypes
import enum
import errno
import itertools
import os
import queue
import sys
import threading
import traceback
import weakref
from typing import Any, Callable, ClassVar, Dict, Iterable, List, Optional, Tuple, Type, TypeVar, Union

from . import _calls, _library, errors
from ._library import ABI, P, ArenaOptions, RawParticipant, check, function
from ._wait import wait
from .errors import Participant
from .layout import description_of, layout_of

__all__ = ["Arena", "Policy", "remove"]

C = TypeVar("C")

_U64 = ctypes.c_uint64
_open = function("arena_open_abi", P, P, P, ctypes.c_uint32)
_from_fd = function("arena_from_fd_abi", ctypes.c_int, P, P, ctypes.c_uint32)
_close = function("arena_close", P)
_remove = function("arena_remove", P)
_self = function("arena_self", P, P)
_participants = function("arena_participants", P, P, P)
_on_death = function("arena_on_death", P, P, P)
_size = function("arena_size", P, result=_U64)
_base = function("arena_base", P, result=ctypes.c_void_p)
_delete = function("delete", P, P)
_delete_at = function("delete_at", P, _U64)
_alloc = function("alloc", P, _U64, P)
_free = function("free", P, _U64)
_at = function("at", P, _U64, _U64, result=ctypes.c_void_p)
_block_open = function("block_open", P, P, _U64, P)
_block_attach = function("block_attach", P, P, P, P)
_value_open = function("value_open", P, P, _U64, _U64, P)
_value_open_type = function("value_open_type", P, P, _U64, ctypes.c_char_p, P)


# A thread that adds an arena to all arenas, goes through them, or changes _deaths has this lock.
_lock = threading.RLock()


def _forked() -> None:
    global _lock
    _lock = threading.RLock()  # the child has no copy of the thread that may have had the other one


os.register_at_fork(after_in_child=_forked)


# Where the header of an arena has its random ID, and how many bytes the ID has: hdrID in docs/abi.md.
_ID_AT, _ID_BYTES = 56, 16


class Policy(enum.IntEnum):
    """What happens to a lock whose holder dies. The policy is fixed when the lock is created."""

    DEFAULT = 0
    """REPORT for a new lock; any policy for an existing one."""
    REPORT = 1
    """Calls raise :class:`OwnerDead` until a process calls ``recover``."""
    RELEASE = 2
    """The lock becomes free when the process has ended."""


class Arena:
    """Shared memory that this process has joined.

    ``Arena("jobs")`` joins the file ``/dev/shm/jobs`` and creates it if it does not exist. A name with a slash, or a
    path object such as a ``pathlib.Path``, is the path of a file. ``size`` and ``max_participants`` are for a new arena;
    0 means 64 MiB and 128 participants. ``label`` is a name of this process for people; other processes see it if this
    one dies. With ``create=False`` the call raises :class:`NotFound` if the arena does not exist.

    The file has to belong to the effective user of the process, to root, or to one of the users in ``trust_uids``.
    Otherwise the call raises :class:`NotPermitted`, since the owner of a file can damage what the process relies on.

    A process stays in the arena until it closes the arena as often as it opened it, or ends. Leaving is treated like
    a death: other processes get or recover what the process held. At the end of a Python program, and of a process
    that multiprocessing started, the arenas are closed.

    A child of ``fork`` is no participant: each of its calls raises :class:`Forked`, and it opens the arena itself.
    """

    _all: ClassVar[weakref.WeakSet[Arena]] = weakref.WeakSet()

    def __init__(
        self,
        name: Union[str, bytes, os.PathLike[str], os.PathLike[bytes]],
        *,
        size: int = 0,
        max_participants: int = 0,
        mode: int = 0,
        label: Optional[str] = None,
        create: bool = True,
        trust_uids: Iterable[int] = (),
    ) -> None:
        opts = ArenaOptions(size=size, max_participants=max_participants, mode=mode, attach_only=not create)
        opts.label = None if label is None else _library.text(label, "the label")
        path = _library.path(name)
        self._begin(os.fsdecode(path), trust_uids)
        self._join(_open, path, opts)

    def _begin(self, name: Optional[str], trust_uids: Iterable[int]) -> None:
        # The arena, or nothing if this process has closed it. It is a list, so that only one close gets the arena.
        self._joined: List[ctypes.c_void_p] = []
        self._name = name
        self._path = name if name is None or "/" not in name else os.path.join(os.getcwd(), name)
        self._pid = os.getpid()
        self._trusted = [_library.fits(uid, 0, (1 << 32) - 1, "the user ID") for uid in trust_uids]
        self._deaths: Optional[int] = None  # the number of the queue in _heard for the function of on_death
        with _lock:
            Arena._all.add(self)

    def _join(self, call: Callable[..., int], which: Any, opts: ArenaOptions) -> None:
        trusted = (ctypes.c_uint32 * len(self._trusted))(*self._trusted)
        opts.trust_uids, opts.n_trust_uids = ctypes.addressof(trusted), len(trusted)
        _expect_end()
        while True:
            try:
                self._try_join(call, which, ctypes.byref(opts))
                return
            except errors.TimedOut:
                pass  # the process was stopped for long and had no byte lock, so others took it for dead

    def _try_join(self, call: Callable[..., int], *args: Any) -> None:
        arena = ctypes.c_void_p()
        try:
            # The function on_first of another process may run for long. So this is a wait, during which handlers run.
            check(wait(call, call, (*args, ctypes.byref(arena), ABI), None), of_file=True)
            self._joined = [arena]
        except BaseException:
            if arena.value is not None and not self._joined:  # a signal handler has raised
                _close(arena)
            raise

    @classmethod
    def from_fd(cls, fd: int, *, trust_uids: Iterable[int] = ()) -> Arena:
        """Join the arena in an open file, such as an inherited memfd. The caller still has to close the descriptor."""
        self = cls.__new__(cls)
        self._begin(None, trust_uids)
        self._join(_from_fd, _library.fits(fd, -1 << 31, (1 << 31) - 1, "the descriptor"), ArenaOptions())
        return self

    def _pointer(self) -> ctypes.c_void_p:
        for arena in self._joined:
            return arena
        raise errors.Closed(errno.EBADF, f"arena {self._name!r}: this process has closed it")

    @property
    def name(self) -> Optional[str]:
        """The name by which this process opened the arena, or None for an arena of :meth:`from_fd`."""
        return self._name

    @property
    def size(self) -> int:
        """The size of the arena in bytes."""
        return int(_size(self._pointer()))

    def close(self) -> None:
        """Leave the arena. Threads of this process that wait in it get :class:`Closed`.

        Afterwards calls of its objects raise :class:`Closed`. Its memory must not be used any more: what the process
        writes there reaches no other process. A second close does nothing. If the process has opened the arena
        several times, only the last close leaves it.

        In a signal handler that runs during a wait in the arena, the call does not wait for the end of that wait, which
        comes when the handler returns: the arena is closed in another thread.
        """
        joined: List[ctypes.c_void_p] = getattr(self, "_joined", [])
        arenas = list(joined)
        results: List[int] = []
        # Only one close pops the arena, and no signal handler runs between that and the close of the library.
        try:
            results.extend(itertools.islice(map(_close, iter(joined.pop, None)), 1))
        except IndexError:
            return  # it is closed, or another thread closes it
        if results[0] == errno.EDEADLK and _calls.handles_signal_in_wait():
            # The close would wait for the wait during which this handler runs. In another thread, it ends that wait.
            try:
                threading.Thread(target=_close_later, args=(arenas,), name="shmsync-close").start()
            except BaseException:
                joined.extend(arenas)  # a later close can leave the arena
                raise
        else:
            if results[0] == errno.EDEADLK:
                joined.extend(arenas)  # a later close can leave the arena
            check(results[0])
        self._forget_deaths()

    def _forget_deaths(self) -> None:
        with _lock:
            if self._deaths is not None:
                deaths = _heard.pop(self._deaths, None)
                self._deaths = None
                if deaths is not None:
                    deaths.put(None)

    def __enter__(self) -> Arena:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        try:
            self.close()
        except errors.Error as e:
            # EDEADLK: the collector of cycles runs on the death watcher, which cannot wait for its own end. Any other
            # error is that of a child of fork, which has nothing to close.
            if e.errno == errno.EDEADLK:
                _thread.start_new_thread(_close_later, (list(self._joined),))

    def __repr__(self) -> str:
        return f"<shmsync.Arena {self._name!r}{'' if self._joined else ', closed'}>"

    def __reduce__(self) -> Tuple[Any, ...]:
        if self._name is None:
            raise TypeError("an arena that was opened by a descriptor has no name that another process could open")
        return (_reopened, (self._path, self._id(), self._trusted))

    def _id(self) -> bytes:
        """The random ID of the arena."""
        base: int = _base(self._pointer())
        return ctypes.string_at(base + _ID_AT, _ID_BYTES)

    def this_participant(self) -> Participant:
        """Return this process as a participant."""
        raw = RawParticipant()
        check(_self(self._pointer(), ctypes.byref(raw)))
        return _library.participant(raw)

    def participants(self) -> List[Participant]:
        """Return the processes that are in the arena."""
        found: List[Participant] = []

        def add(raw: Any, _: object) -> int:
            found.append(_library.participant(raw.contents))
            return 0

        check(_participants(self._pointer(), _library.OnParticipant(add), None))
        return found

    def on_death(self, f: Callable[[Participant], object]) -> None:
        """Call f for each participant that dies from now on, in a thread of its own.

        Leaving the arena is no death. If f raises an exception, such as SystemExit, the thread prints it and goes on
        with the next death. An arena has one such function in a process; a second call raises
        :class:`RuntimeError`, even through another Arena object for the same arena.
        """
        deaths: queue.SimpleQueue[Optional[Participant]] = queue.SimpleQueue()
        number = next(_numbers)

        def tell() -> None:
            while True:
                who = deaths.get()
                if who is None:
                    return
                try:
                    f(who)
                except BaseException:  # a SystemExit, too, ends only this call of f
                    # If the standard error cannot be written to, the next deaths are still to be told.
                    with contextlib.suppress(Exception):
                        traceback.print_exc()

        arena = self._pointer()
        with _lock:
            # All Arena objects of this process for one arena have the same pointer.
            for other in Arena._all:
                if other._deaths is not None and any(a.value == arena.value for a in other._joined):
                    raise RuntimeError(f"arena {self._name!r}: on_death was called before")
            self._deaths, _heard[number] = number, deaths
        try:
            check(_on_death(arena, _on_heard, number))
            threading.Thread(target=tell, name="shmsync-deaths", daemon=True).start()
        except BaseException:
            self._forget_deaths()
            raise

    def delete(self, name: str) -> None:
        """Remove an object and its name. :class:`Busy` if a process has the object open."""
        check(_delete(self._pointer(), _library.text(name, "the name")))

    def delete_at(self, offset: int) -> None:
        """Remove the object at an offset, such as an anonymous one. :class:`Busy` if a process has the object open."""
        check(_delete_at(self._pointer(), _library.u64(offset, "the offset")))

    def block(self, name: str, size: Optional[int] = None) -> memoryview:
        """Return bytes that processes find by a name. They are zero when the block is created.

        Without a size, the block must exist. With one, it is created if it does not exist, and must have that size.
        The bytes have no lock: use one of your own if two processes may change them at the same time.
        """
        address, named = ctypes.c_void_p(), _library.text(name, "the name")
        if size is not None:
            check(_block_open(self._pointer(), named, _library.u64(size, "the size"), ctypes.byref(address)))
            return self._bytes(address.value, size)
        has = _U64()
        check(_block_attach(self._pointer(), named, ctypes.byref(address), ctypes.byref(has)))
        return self._bytes(address.value, has.value)

    def value(self, name: str, kind: Type[C]) -> C:
        """Return a value of a ctypes type that processes find by a name. It is zero when it is created.

        In Go it is an ``arena.Value`` of a type that has the same numbers at the same places. The value has no lock:
        use one of your own if two processes may change it at the same time, or use :class:`Synchronized`.
        """
        address = ctypes.c_void_p()
        size, text = ctypes.sizeof(kind), description_of(kind)  # type: ignore[arg-type]
        arena, named = self._pointer(), _library.text(name, "the name")
        if text is not None:
            check(_value_open_type(arena, named, size, text, ctypes.byref(address)))
        else:
            check(_value_open(arena, named, size, layout_of(kind), ctypes.byref(address)))
        v: Any = kind.from_address(address.value)  # type: ignore[attr-defined]
        v._shmsync_arena = self
        return v  # type: ignore[no-any-return]

    def alloc(self, size: int) -> int:
        """Return the offset of new bytes, which are zero. They stay until a process frees them."""
        arena, offset = self._pointer(), _U64()
        try:
            check(_alloc(arena, _library.u64(size, "the size"), ctypes.byref(offset)))
            return offset.value
        except BaseException:
            if offset.value != 0:  # a signal handler has raised
                _free(arena, offset)
            raise

    def free(self, offset: int) -> None:
        """Free the bytes at an offset that :meth:`alloc` returned."""
        check(_free(self._pointer(), _library.u64(offset, "the offset")))

    def at(self, offset: int, size: int) -> memoryview:
        """Return the bytes at an offset. ValueError if no block has size bytes there."""
        address = _at(self._pointer(), _library.u64(offset, "the offset"), _library.u64(size, "the size"))
        if address is None:
            raise ValueError(f"arena {self._name!r}: no block has {size} bytes at {offset:#x}")
        return self._bytes(address, size)

    def _bytes(self, address: Optional[int], size: int) -> memoryview:
        assert address is not None
        whole = (ctypes.c_char * size).from_address(address)
        whole._shmsync_arena = self  # type: ignore[attr-defined] # the bytes keep the arena open
        return memoryview(whole).cast("B")


def _close_later(arenas: List[ctypes.c_void_p]) -> None:
    for arena in arenas:
        _close(arena)


# The queues of the functions of on_death that are set, by the numbers that the library passes to _hear. No number is
# used twice, so a late call of _hear for an arena that was closed finds no queue.
_heard: Dict[int, queue.SimpleQueue[Optional[Participant]]] = {}
_numbers = itertools.count(1)


# This function runs on the death watcher, which must not wait for the function of on_death.
def _hear(raw: Any, number: int) -> None:
    deaths = _heard.get(number)
    if deaths is not None:
        deaths.put(_library.participant(raw.contents))


# All calls of on_death give this one to the library, which may call it until the process ends.
_on_heard = _library.OnDeath(_hear)

# The arenas that were passed from other processes, by their random IDs.
_by_id: weakref.WeakValueDictionary[bytes, Arena] = weakref.WeakValueDictionary()


def _reopened(path: str, number: bytes, trust_uids: List[int]) -> Arena:
    """Open an arena that was passed from another process. All objects that were passed with it share this arena."""
    arena = _by_id.get(number)
    if arena is None or not arena._joined or arena._pid != os.getpid():
        arena = Arena(path, create=False, trust_uids=trust_uids)
        if arena._id() != number:
            arena.close()
            raise errors.NotFound(errno.ENOENT, f"arena {path!r}: its file was replaced, and is another arena now")
        _by_id[number] = arena
    return arena


def remove(name: Union[str, bytes, os.PathLike[str], os.PathLike[bytes]]) -> None:
    """Remove the file of an arena. :class:`Busy` if a process is in it, :class:`NotFound` if it does not exist."""
    check(_remove(_library.path(name)), of_file=True)


def _close_all() -> None:
    """Close the arenas, so that no thread of the library calls into an interpreter that ends."""
    with _lock:
        arenas = list(Arena._all)
    for arena in arenas:
        if arena._pid == os.getpid():
            try:
                arena.close()
            except errors.Error:
                pass


atexit.register(_close_all)

# Whether multiprocessing calls _finish_child in the children of this process.
_expects_end = False

# multiprocessing runs the finalizers with the highest priority first. The program may have some that use an arena.
_LAST = -(1 << 62)


def _expect_end() -> None:
    """If this process is a child that multiprocessing started, close its arenas at its end.

    Such a child of ``fork`` or ``forkserver`` ends with os._exit, and so without the functions of atexit. Before that,
    it runs the finalizers of multiprocessing.
    """
    global _expects_end
    if _expects_end or "multiprocessing.util" not in sys.modules:
        return
    import multiprocessing.process
    import multiprocessing.util

    _expects_end = True
    # A child that gets an arena as an argument joins it before multiprocessing clears the finalizers. After that,
    # multiprocessing calls _finish_child, also in each child of fork.
    multiprocessing.util.register_after_fork(_close_all, _finish_child)
    if multiprocessing.process.parent_process() is not None:
        _finish_child()


def _finish_child(*_: object) -> None:
    import multiprocessing.util

    multiprocessing.util.Finalize(None, _close_at_end, exitpriority=_LAST)


def _close_at_end() -> None:
    """Close the arenas when the threads of this process that are not daemons have ended.

    A child of multiprocessing waits for these threads after its finalizers. Some of them end only then, such as those
    of a ThreadPoolExecutor. So a thread waits for them here.
    """
    if _other_threads():
        with contextlib.suppress(RuntimeError):  # no thread can start
            threading.Thread(target=_close_after_threads, name="shmsync-close", daemon=False).start()
            return
    _close_all()


def _other_threads() -> List[threading.Thread]:
    here = (threading.main_thread(), threading.current_thread())
    return [t for t in threading.enumerate() if not t.daemon and t not in here]


def _close_after_threads() -> None:
    while True:
        others = _other_threads()
        if not others:
            break
        for t in others:
            t.join()
    _close_all()
