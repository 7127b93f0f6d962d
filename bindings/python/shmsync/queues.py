"""Objects with contents: Queue, RecordQueue and Synchronized."""

from __future__ import annotations

import ctypes
import errno
import itertools
import queue
from functools import partial
from types import TracebackType
from typing import Any, Generic, Optional, Tuple, Type, TypeVar

from . import _calls, _library
from ._library import P, QueueOptions, SynchronizedOptions, check
from ._object import Object
from ._wait import deadline_of, take, wait
from .arena import Arena
from .errors import NotHeld
from .layout import description_of, layout_of

__all__ = ["Lease", "Queue", "RecordQueue", "Synchronized"]

# The size of the largest item.
_MOST = 65536

C = TypeVar("C")
I = TypeVar("I")

_tryput = _library.function("queue_tryput")
_trylease = _library.function("queue_trylease")
_lease = _library.function("queue_lease")
_timedlease = _library.function("queue_timedlease")
_ack = _library.function("lease_ack")
_nack = _library.function("lease_nack")


class Lease(_calls.Lease, Generic[I]):
    """An item that this process has taken and that stays in the queue's memory until the process acknowledges it.

    With :meth:`nack`, with the death of this process, or if the program drops this object, the item goes back to the
    front of the queue. A ``with`` statement acknowledges the item at its end, or gives it back if its body raises. The
    lease keeps the queue open.
    """

    item: I
    """The item."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue
        self._handle = _library.Lease()
        self._ref: Any = ctypes.byref(self._handle)
        self._over = True
        _calls.begin(self, [(None, "lease_ack", None, "lease_nack")])

    @property
    def attempts(self) -> int:
        """How often the item was leased before without being acknowledged."""
        return int(self._handle.attempts)

    def ack(self) -> None:
        """Remove the item from the queue. :class:`NotHeld` if this process no longer has it."""
        check(_ack(self._ref))
        self._over = True

    def nack(self) -> None:
        """Give the item back to the front of the queue. :class:`NotHeld` if this process no longer has it."""
        check(_nack(self._ref))
        self._over = True

    def __reduce__(self) -> Any:
        raise TypeError("a lease has no copy, which would give its item back, too")

    def __enter__(self) -> I:
        return self.item

    def __exit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if self._over:
            return
        if kind is None:
            self.ack()
        else:
            try:
                self.nack()
            except NotHeld:
                pass  # the exception of the body says more

    def __del__(self) -> None:
        if not getattr(self, "_over", True):
            _nack(self._ref)


_calls.use(Lease)
if _calls.built:
    del Lease.__del__  # the C module has one


class _Items(_calls.Items, Object, Generic[I]):
    """The base class of both queues. Subclasses convert items to bytes, and bytes to items."""

    _kind = "queue"
    _number = ctypes.c_size_t
    _number_always = True
    _bytes: Any

    def _begin(self, arena: Arena, name: Optional[str]) -> None:
        super()._begin(arena, name)
        leasing = ("queue_trylease", "queue_lease", "queue_timedlease", "lease_nack")
        _calls.begin(self, [leasing, (None, "lease_ack", None, None)])

    def _encode(self, item: I) -> Any:
        """Return the buffer from which the library reads an item. It has at least as many bytes as an item."""
        raise NotImplementedError

    def _decode(self, memory: Any) -> I:
        raise NotImplementedError

    def put(self, item: I, block: bool = True, timeout: Optional[float] = None) -> None:
        """Put an item into the queue.

        ``queue.Full`` if there is no room, or none within timeout seconds. :class:`Canceled` if the queue is shut down.
        If a signal handler raises during this call, as for Ctrl-C, the item may or may not be in the queue.
        """
        memory = self._encode(item)
        code: int = _tryput(self._ref, memory)
        if code == 0:
            return
        if code == errno.EBUSY and block:
            args = (self._ref, memory)
            code = wait(self._function("put"), self._function("timedput"), args, deadline_of(timeout))
        if code in (errno.EBUSY, errno.ETIMEDOUT):
            raise queue.Full
        check(code)

    def put_nowait(self, item: I) -> None:
        """Put an item into the queue, or raise ``queue.Full`` at once."""
        self.put(item, False)

    def get(self, block: bool = True, timeout: Optional[float] = None) -> I:
        """Take the first item out of the queue. If this process dies afterwards, the item is lost; see :meth:`lease`.

        ``queue.Empty`` if there is none, or none within timeout seconds. :class:`Canceled` if the queue is shut down
        and empty.
        """
        # An iteration is one instruction of Python, and so is the end of this call: no signal handler runs between the
        # moment at which the item leaves the queue and the caller's next call.
        for item in itertools.starmap(self._get, ((block, timeout),)):
            return item
        raise AssertionError

    def _get(self, block: bool = True, timeout: Optional[float] = None) -> I:
        # The item is leased first, so that it goes back to the queue if a signal ends this call.
        memory, raw = self._bytes(), _library.Lease()
        ref = ctypes.byref(raw)
        try:
            self._take(memory, ref, block, timeout)
            item = self._decode(memory)
            for code in itertools.starmap(_ack, ((ref,),)):
                if code == 0:
                    return item
                check(code)
        except BaseException:
            _nack(ref)  # does nothing if there is no lease, or the lease is over
            raise
        raise AssertionError

    def get_nowait(self) -> I:
        """Take the first item out of the queue, or raise ``queue.Empty`` at once."""
        return self.get(False)

    def lease(self, block: bool = True, timeout: Optional[float] = None) -> Lease[I]:
        """Take the first item as a lease, which the caller has to acknowledge.

        ``queue.Empty`` if there is none, or none within timeout seconds. :class:`Canceled` if the queue is shut down
        and empty.
        """
        memory, lease = self._bytes(), self._new_lease()
        try:
            self._take(memory, lease._ref, block, timeout)
            lease.item = self._decode(memory)
            lease._over = False
            return lease
        except BaseException:
            _nack(lease._ref)
            raise

    def _new_lease(self) -> Lease[I]:
        return Lease(self)

    def _take(self, memory: Any, lease: Any, block: bool, timeout: Optional[float]) -> None:
        """Lease an item. The caller ends the lease if a signal handler raises."""
        args = (self._ref, ctypes.byref(memory), lease)
        code: int = _trylease(*args)
        if code == errno.EBUSY and block:
            code = wait(_lease, _timedlease, args, deadline_of(timeout))
        if code in (errno.EBUSY, errno.ETIMEDOUT):
            raise queue.Empty
        check(code)

    def shutdown(self) -> None:
        """Shut the queue down: puts raise :class:`Canceled` at once, and gets do so when the queue is empty."""
        check(self._function("shutdown")(self._ref))

    def qsize(self) -> int:
        """Return the number of items in the queue."""
        return int(self._function("len", P, result=ctypes.c_uint32)(self._ref))

    def empty(self) -> bool:
        """Report whether the queue is empty."""
        return self.qsize() == 0

    def full(self) -> bool:
        """Report whether the queue is full."""
        return self.qsize() >= self.maxsize

    @property
    def maxsize(self) -> int:
        """The number of items that the queue has room for."""
        return int(self._function("cap", P, result=ctypes.c_uint32)(self._ref))


_calls.use(_Items)
if not _calls.built:
    setattr(_Items, "get", _Items._get)


class Queue(_Items[bytes]):
    """A queue of byte strings with room for ``maxsize`` of them, of at most ``max_bytes`` bytes each.

    An item occupies its maximal size in the arena. A process in Go opens the queue as a
    ``Queue[struct { Len uint32; Data [N]byte }]``, where N is ``max_bytes`` rounded up to a multiple of 4.
    """

    _prefix = 4

    def __init__(
        self, arena: Arena, name: Optional[str] = None, maxsize: int = 64, max_bytes: int = 1024, *, create: bool = True
    ) -> None:
        self._shape(max_bytes)
        item = self._item_of(self._max)
        options = QueueOptions(capacity=maxsize, layout=layout_of(item), type=description_of(item))
        self._open(arena, name, create, options, self._size)

    def _shape(self, max_bytes: int) -> None:
        self._max = (_library.fits(max_bytes, 0, _MOST - self._prefix, "max_bytes") + 3) // 4 * 4
        self._size = self._item_bytes = self._prefix + self._max
        self._bytes = ctypes.c_char * self._size

    @staticmethod
    def _item_of(data: int) -> Type[ctypes.Structure]:
        class Item(ctypes.Structure):
            _fields_ = [("len", ctypes.c_uint32), ("data", ctypes.c_ubyte * data)]

        return Item

    @property
    def max_bytes(self) -> int:
        """The length of the longest item."""
        return self._max

    def _encode(self, item: bytes) -> bytes:
        if not isinstance(item, bytes):
            item = bytes(memoryview(item))
        n = len(item)
        if n > self._max:
            raise ValueError(f"{self!r}: an item of {n} bytes, of at most {self._max}")
        return n.to_bytes(4, "little") + item + bytes(self._max - n)

    def _decode(self, memory: Any) -> bytes:
        whole: bytes = memory.raw
        return whole[4 : 4 + int.from_bytes(whole[:4], "little")]

    def _parts(self) -> Tuple[Any, ...]:
        return (self._max,)

    @classmethod
    def at(cls, arena: Arena, offset: int, max_bytes: int = 1024) -> Queue:
        """Open the queue at an offset that another process got from :attr:`offset`."""
        return cls._reopen(arena, offset, max_bytes)

    @classmethod
    def _reopen(cls, arena: Arena, offset: int, *parts: Any) -> Queue:
        self = cls.__new__(cls)
        self._shape(*parts)
        self._open_at(arena, offset, self._size)
        return self


class RecordQueue(_Items[C]):
    """A queue of values of a ctypes type, with room for ``maxsize`` of them.

    A process in Go opens the queue as a ``Queue[T]`` of a type T that has the same numbers at the same places.
    """

    def __init__(
        self, arena: Arena, name: Optional[str], kind: Type[C], maxsize: int = 64, *, create: bool = True
    ) -> None:
        self._bytes = kind
        options = QueueOptions(capacity=maxsize, layout=layout_of(kind), type=description_of(kind))
        self._open(arena, name, create, options, ctypes.sizeof(kind))  # type: ignore[arg-type]

    def _encode(self, item: C) -> Any:
        if not isinstance(item, self._bytes):
            raise TypeError(f"{self!r}: an item is a {self._bytes.__name__}, not a {type(item).__name__}")
        return ctypes.byref(item)

    def _decode(self, memory: Any) -> C:
        return memory  # type: ignore[no-any-return]

    def _parts(self) -> Tuple[Any, ...]:
        return (self._bytes,)

    @classmethod
    def at(cls, arena: Arena, offset: int, kind: Any = None) -> RecordQueue[C]:
        """Open the queue at an offset that another process got from :attr:`offset`."""
        return cls._reopen(arena, offset, kind)

    @classmethod
    def _reopen(cls, arena: Arena, offset: int, *parts: Any) -> RecordQueue[C]:
        self = cls.__new__(cls)
        (self._bytes,) = parts
        self._open_at(arena, offset, ctypes.sizeof(self._bytes))
        return self


class Synchronized(_calls.Synchronized, Object, Generic[C]):
    """A value of a ctypes type that changes wholly or not at all, even if the process that changes it is killed.

    ``with value as v:`` locks it and gives a copy to change. The copy becomes the value at the end of the body; if
    the body raises, or the process dies, the value stays as it was. :meth:`load` waits for nobody. The lock belongs to
    the process and is not recursive: a second begin of the same process waits for the end of the first.
    """

    _kind = "synchronized"
    _number = ctypes.c_size_t
    _number_always = True

    def __init__(
        self, arena: Arena, name: Optional[str], kind: Type[C], initial: Optional[C] = None, *, create: bool = True
    ) -> None:
        self._type: Any = kind
        opts = SynchronizedOptions(layout=layout_of(kind), type=description_of(kind))
        if initial is not None:
            self._require(initial)
            opts.initial = ctypes.addressof(initial)  # type: ignore[arg-type]
        self._open(arena, name, create, opts, ctypes.sizeof(self._type))

    def _parts(self) -> Tuple[Any, ...]:
        return (self._type,)

    @classmethod
    def at(cls, arena: Arena, offset: int, kind: Any = None) -> Synchronized[C]:
        """Open the value at an offset that another process got from :attr:`offset`."""
        return cls._reopen(arena, offset, kind)

    @classmethod
    def _reopen(cls, arena: Arena, offset: int, *parts: Any) -> Synchronized[C]:
        self = cls.__new__(cls)
        (self._type,) = parts
        self._open_at(arena, offset, ctypes.sizeof(self._type))
        return self

    def load(self) -> C:
        """Return a copy of the value. The call does not wait for a process that changes it, even a stopped one."""
        v = self._type()
        check(self._function("load")(self._ref, ctypes.byref(v)))
        return v  # type: ignore[no-any-return]

    def store(self, value: C) -> None:
        """Replace the value by a copy of the argument."""
        self._require(value)
        with self as v:
            ctypes.memmove(ctypes.byref(v), ctypes.byref(value), ctypes.sizeof(self._type))  # type: ignore[arg-type]

    def _begin(self, arena: Arena, name: Optional[str]) -> None:
        super()._begin(arena, name)
        begin = (None, "synchronized_begin", "synchronized_timedbegin", "synchronized_abort")
        _calls.begin(self, [begin, (None, "synchronized_commit", None, None)])
        self._memory: Any = ctypes.c_char * ctypes.sizeof(self._type)

    def _require(self, value: C) -> None:
        if not isinstance(value, self._type):
            raise TypeError(f"the value is a {self._type.__name__}, not a {type(value).__name__}")

    def _view(self, address: Optional[int]) -> C:
        """Return the value at an address. It keeps the object and the arena open."""
        memory = self._memory.from_address(address)
        memory._shmsync_object = self
        return self._type.from_buffer(memory)  # type: ignore[no-any-return]

    def begin(self, timeout: Optional[float] = None) -> Optional[C]:
        """Lock the value, and return a copy of it to change until :meth:`commit` or :meth:`abort`.

        Return None if that takes longer than timeout seconds. The copy must not be used after commit or abort.
        """
        address = ctypes.c_void_p()
        args = (self._ref, ctypes.byref(address))
        undo = partial(self._function("abort"), self._ref)
        if not take(None, self._function("begin"), self._function("timedbegin"), args, undo, timeout=timeout):
            return None
        try:
            return self._view(address.value)
        except BaseException:
            undo()
            raise

    def commit(self) -> None:
        """Make the copy the value, in one step, and unlock. :class:`NotHeld` without a begin."""
        check(self._function("commit")(self._ref))

    def abort(self) -> None:
        """Unlock, and leave the value as it was before begin. :class:`NotHeld` without a begin."""
        check(self._function("abort")(self._ref))

    @property
    def commits(self) -> int:
        """How often the value was changed."""
        return int(self._function("commits", P, result=ctypes.c_uint64)(self._ref))

    def __enter__(self) -> C:
        copy = self.begin()
        assert copy is not None
        return copy

    def __exit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if kind is None:
            self.commit()
        else:
            self.abort()


_calls.use(Synchronized)
