"""The base class of all objects of an arena."""

from __future__ import annotations

import ctypes
import errno
from typing import TYPE_CHECKING, Any, Callable, ClassVar, Dict, Optional, Tuple, Type, TypeVar

from . import _calls, _library
from ._library import Handle, P, check, failure_of
from .errors import NotFound

if TYPE_CHECKING:
    from .arena import Arena

__all__ = ["Object"]

T = TypeVar("T", bound="Object")

_I64 = ctypes.c_int64
_U64 = ctypes.c_uint64


class Object(_calls.Object):
    """An object of an arena, as this process has it open.

    Processes that open the same name have the same object. A name of None makes a fresh anonymous object, which
    other processes open by its offset. An object is deleted with :meth:`Arena.delete`, when no process has it open.

    An object can be an argument of a process that multiprocessing starts by ``spawn`` or ``forkserver``: the new
    process opens the same arena and the same object, or gets :class:`NotFound`. A child of ``fork`` gets
    :class:`Forked` from every call, and opens them itself.
    """

    # The name of the kind in the functions of the library, and the C type of the number that the open function takes
    # after the name.
    _kind: ClassVar[str]
    _number: ClassVar[Optional[Any]] = None
    # Whether the functions that attach, or open by offset, take that number, too.
    _number_always: ClassVar[bool] = False
    _bound: ClassVar[Dict[Tuple[str, str], Callable[..., Any]]] = {}

    def _open(self, arena: Arena, name: Optional[str], create: bool, options: Any, number: Optional[int] = None) -> None:
        """Open the object by its name, and create it if it does not exist and create is true."""
        self._begin(arena, name)
        takes = self._number is not None and (create or self._number_always)
        numbers, given = ((self._number,), (number,)) if takes else ((), ())
        call = self._function("open" if create else "attach", P, P, *numbers, P, P)
        pointer = None if options is None else ctypes.byref(options)
        named = None if name is None else _library.text(name, "the name")
        self._opened = True  # before the call: a signal handler may raise after it, and a close of nothing does nothing
        self._opened_by(call(arena._pointer(), named, *given, pointer, self._ref))

    def _begin(self, arena: Arena, name: Optional[str]) -> None:
        self._opened = False
        self._closer = self._function("close")
        self._arena = arena
        self._name = name
        self._handle = Handle()
        self._ref: Any = ctypes.byref(self._handle)
        if _calls.built:
            self._close_at = _calls.address_of(f"{self._kind}_close")
            _calls.begin(self, [])

    def _open_at(self, arena: Arena, offset: int, number: Optional[int] = None) -> None:
        self._begin(arena, None)
        numbers = (self._number,) if self._number_always else ()
        self._given = (number,) if self._number_always else ()
        call = self._function("at", P, _U64, *numbers, P)
        place = _library.u64(offset, "the offset")
        self._opened = True
        self._opened_by(call(arena._pointer(), place, *self._given, self._ref))

    def _has_name(self, name: str) -> bool:
        """Report whether this object, which was opened by its offset, has a name. It cannot be deleted meanwhile."""
        numbers = (self._number,) if self._number_always else ()
        call = self._function("attach", P, P, *numbers, P, P)
        named = Handle()
        ref = ctypes.byref(named)
        try:
            code = call(self._arena._pointer(), _library.text(name, "the name"), *self._given, None, ref)
            if code in (errno.ENOENT, errno.EINVAL):  # there is none, or one of another kind or size
                return False
            check(code)
            return bool(self._function("offset", P, result=_U64)(ref) == self.offset)
        finally:
            self._closer(ref)

    def _opened_by(self, code: int) -> None:
        if code != 0:
            self._opened = False
            raise failure_of(code)

    @classmethod
    def _function(cls, verb: str, *argtypes: Any, result: Any = ctypes.c_int) -> Callable[..., Any]:
        """Return the library's function for a verb of this kind of object. It is the same at each call."""
        key = (cls._kind, verb)
        f = Object._bound.get(key)
        if f is None:
            f = Object._bound[key] = _library.function(f"{cls._kind}_{verb}", *argtypes, result=result)
        return f

    @property
    def arena(self) -> Arena:
        """The arena that has the object."""
        return self._arena

    @property
    def name(self) -> Optional[str]:
        """The name by which this process opened the object, or None."""
        return self._name

    @property
    def offset(self) -> int:
        """The position of the object in the arena, which is the same in every process. 0 if it is closed."""
        return int(self._function("offset", P, result=_U64)(self._ref))

    def close(self) -> None:
        """Give this opening of the object back. What the process holds of it stays held.

        Every later call of this Python object raises :class:`Closed`. No other thread may be in a call of it.
        """
        if self._opened:
            code = self._closer(self._ref)
            self._opened = False  # after the call: if a signal handler raises in between, another close does nothing
            check(code)

    def __del__(self) -> None:
        if getattr(self, "_opened", False):
            self._opened = False
            self._closer(self._ref)

    def __repr__(self) -> str:
        what = repr(self._name) if self._name is not None else f"at {self.offset:#x}"
        return f"<shmsync.{type(self).__name__} {what}>"

    def __reduce__(self) -> Tuple[Any, ...]:
        return (_reopened, (type(self), self._arena, self._name, self.offset, self._parts()))

    def _parts(self) -> Tuple[Any, ...]:
        """What besides the offset is needed to open the object in another process."""
        return ()

    @classmethod
    def at(cls: Type[T], arena: Arena, offset: int) -> T:
        """Open the object at an offset that another process got from :attr:`offset`."""
        return cls._reopen(arena, offset)

    @classmethod
    def _reopen(cls: Type[T], arena: Arena, offset: int, *parts: Any) -> T:
        self = cls.__new__(cls)
        self._open_at(arena, offset)
        return self


if _calls.built:
    del Object.__del__  # the C module has one


def _reopened(cls: Type[T], arena: Arena, name: Optional[str], offset: int, parts: Tuple[Any, ...]) -> T:
    self = cls._reopen(arena, offset, *parts)
    if name is not None and not self._has_name(name):
        self.close()
        raise NotFound(errno.ENOENT, f"{name!r} was deleted from the arena {arena.name!r}, or replaced")
    self._name = name
    return self
