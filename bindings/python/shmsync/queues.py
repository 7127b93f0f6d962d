"""Objects with contents: Queue, RecordQueue and Synchronized."""

from __future__ import annotations

import ctypes
import errno
import queue
from types import TracebackType
from typing import Any, Generic, Optional, Tuple, Type, TypeVar

from . import _library
from ._library import P, QueueOptions, SynchronizedOptions, check
from ._object import Object
from ._wait import deadline_of, wait
from .arena import Arena
from .errors import NotHeld
from .layout import layout_of

__all__ = ["Lease", "Queue", "RecordQueue", "Synchronized"]

C = TypeVar("C")
I = TypeVar("I")

_tryput = _library.function("queue_tryput")
_tryget = _library.function("queue_tryget")
_ack = _library.function("lease_ack")
_nack = _library.function("lease_nack")


class Lease(Generic[I]):
    """An item that this process has taken and that stays in the queue's memory until the process acknowledges it.

    With :meth:`nack`, or with the death of this process, the item goes back to the front of the queue. A ``with``
    statement acknowledges the item at its end, or gives it back if its body raises.
    """

    def __init__(self, raw: _library.Lease, item: I) -> None:
        self._raw = raw
        self.item = item
        """The item."""
        self.attempts: int = raw.attempts
        """How often the item was leased before without being acknowledged."""
        self._over = False

    def ack(self) -> None:
        """Remove the item from the queue. :class:`NotHeld` if this process no longer has it."""
        check(_ack(ctypes.byref(self._raw)))
        self._over = True

    def nack(self) -> None:
        """Give the item back to the front of the queue. :class:`NotHeld` if this process no longer has it."""
        check(_nack(ctypes.byref(self._raw)))
        self._over = True

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


class _Items(Object, Generic[I]):
    """The base class of both queues. Subclasses convert items to bytes, and bytes to items."""

    _kind = "queue"
    _number = ctypes.c_size_t
    _number_always = True
    _bytes: Any

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
        memory = self._bytes()
        code: int = _tryget(self._ref, ctypes.byref(memory))
        if code == 0:
            return self._decode(memory)
        if code == errno.EBUSY and block:
            # The item is leased first, so that it goes back to the queue if a signal ends this call.
            raw = _library.Lease()
            try:
                self._lease(memory, raw, True, timeout)
                check(_ack(ctypes.byref(raw)))
            except BaseException:
                _nack(ctypes.byref(raw))  # does nothing if the lease is over
                raise
            return self._decode(memory)
        if code == errno.EBUSY:
            raise queue.Empty
        check(code)
        raise AssertionError(code)

    def get_nowait(self) -> I:
        """Take the first item out of the queue, or raise ``queue.Empty`` at once."""
        return self.get(False)

    def lease(self, block: bool = True, timeout: Optional[float] = None) -> Lease[I]:
        """Take the first item as :meth:`get` does, but as a lease, which the caller has to acknowledge."""
        memory, raw = self._bytes(), _library.Lease()
        try:
            self._lease(memory, raw, block, timeout)
            return Lease(raw, self._decode(memory))
        except BaseException:
            _nack(ctypes.byref(raw))
            raise

    def _lease(self, memory: Any, raw: _library.Lease, block: bool, timeout: Optional[float]) -> None:
        args = (self._ref, ctypes.byref(memory), ctypes.byref(raw))
        code: int = self._function("trylease")(*args)
        if code == errno.EBUSY and block:
            call, timed = self._function("lease"), self._function("timedlease")
            code = wait(call, timed, args, deadline_of(timeout))
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
        options = QueueOptions(capacity=maxsize, layout=layout_of(self._item_of(self._max)))
        self._open(arena, name, create, options, self._size)

    def _shape(self, max_bytes: int) -> None:
        self._max = (max_bytes + 3) // 4 * 4
        self._size = self._prefix + self._max
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
        options = QueueOptions(capacity=maxsize, layout=layout_of(kind))
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


class Synchronized(Object, Generic[C]):
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
        opts = SynchronizedOptions(layout=layout_of(kind))
        if initial is not None:
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
        with self as v:
            ctypes.memmove(ctypes.byref(v), ctypes.byref(value), ctypes.sizeof(self._type))  # type: ignore[arg-type]

    def begin(self, timeout: Optional[float] = None) -> Optional[C]:
        """Lock the value, and return a copy of it to change until :meth:`commit` or :meth:`abort`.

        Return None if that takes longer than timeout seconds. The copy must not be used after that.
        """
        address = ctypes.c_void_p()
        call, timed = self._function("begin"), self._function("timedbegin")
        args = (self._ref, ctypes.byref(address))
        code = wait(call, timed, args, deadline_of(timeout), self.abort)
        if code == errno.ETIMEDOUT:
            return None
        check(code)
        return self._type.from_address(address.value)  # type: ignore[no-any-return]

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
