"""The calls that take or release something: in C if the C module was built, otherwise in Python.

Python runs signal handlers between two instructions of Python, and a handler may raise. So a method in Python that
takes a lock may be ended when it has the lock and its caller does not know that yet. A function in C is one instruction
of Python. The C module has all calls that take or release something as such functions.

Without the module, the methods in Python do what Python can: see take in _wait.py, and use in this file.
"""

from __future__ import annotations

import ctypes
import functools
import os
import queue
import threading
import types
from typing import TYPE_CHECKING, Any, Callable, Iterable, List, Optional, Tuple

from . import _library, _wait

__all__: List[str] = []

_fast: Any
if TYPE_CHECKING or os.environ.get("SHMSYNC_PURE"):
    built = False
else:
    try:
        from . import _fast

        built = True
    except ImportError:
        built = False

if TYPE_CHECKING or not built:

    class Object:
        """The base class of all objects."""

    class Calls(Object):
        """The base class of all objects whose calls the C module has."""

    # Assign one name in each statement: mypy takes no name for a type if a statement assigns several.
    Mutex = Calls
    Semaphore = Calls
    RWMutex = Calls
    Event = Calls
    Cond = Calls
    Items = Calls
    Lease = Calls
    Synchronized = Calls
else:
    from ._fast import Cond, Event, Items, Lease, Mutex, Object, RWMutex, Semaphore, Synchronized

    _fast.set_main_thread(threading.main_thread().ident)
    # In a child of fork, the thread that called fork is the main thread.
    os.register_at_fork(after_in_child=lambda: _fast.set_main_thread(threading.get_ident()))

# The names of four functions of the library: one that never waits, one that waits, one that waits until a time, and one
# that gives back what the others took.
Operation = Tuple[Optional[str], Optional[str], Optional[str], Optional[str]]

# The first and the last of the four functions never wait, so their calls keep the global interpreter lock.
KEEP_TRY, KEEP_UNDO = 1 << 0, 1 << 3


def handles_signal_in_wait() -> bool:
    """Report whether the calling thread runs a signal handler during a wait in the library."""
    return _wait.in_main_thread() and bool(_wait.waits or (built and _fast.waits()))


class _Exit:
    """The __exit__ of a class in Python whose objects have an attribute _leave.

    The attribute is a partial of a function that leaving has returned, and so a function in C: no signal handler runs
    before it has released what the with statement took.
    """

    def __get__(self, o: Any, kind: Any = None) -> Any:
        # A with statement gets the method before it calls __enter__. The method keeps the object open.
        return self if o is None else types.MethodType(o._leave, o)

    def __call__(self, o: Any, *exception: object) -> object:
        # contextlib.ExitStack calls the attribute of the class.
        return o._leave(o, *exception)


def use(kind: Any) -> None:
    """Replace the methods of a class by those of the C module, if it was built.

    Otherwise, if the class has an attribute _leave, make that its __exit__.
    """
    if built:
        for base in (c for c in kind.__mro__ if c.__module__ == _fast.__name__):
            for name, method in vars(base).items():
                if isinstance(method, types.MethodDescriptorType) and name in vars(kind):
                    setattr(kind, name, method)
    elif hasattr(kind, "_leave"):
        kind.__exit__ = _Exit()


def begin(o: Any, operations: Iterable[Operation], keeps_gil: int = 0) -> None:
    """Tell the methods in C, if they are used, which functions of the library they call for an object."""
    if built:
        addresses = tuple(tuple(0 if name is None else address_of(name) for name in o) for o in operations)
        o._set(ctypes.addressof(o._handle), keeps_gil, addresses)


@functools.lru_cache(maxsize=None)
def address_of(name: str) -> int:
    """Return the address of a function of the library."""
    f: Callable[..., Any] = _library.kept["shmsync_" + name]
    address = ctypes.cast(f, ctypes.c_void_p).value  # type: ignore[arg-type]
    assert address is not None
    return address


if built:
    _fast.setup(_library.failure_of, queue.Empty, ctypes.addressof, address_of("wait_hook"))


def leaving(
    name: str,
    failed: Callable[[int, Any], None],
    numbers: int = 0,
    keep_gil: bool = False,
    lost: Optional[Callable[[Any], bool]] = None,
) -> Callable[..., Any]:
    """Return the library's function of that name for __exit__.

    Its arguments are a handle, as many numbers, an object that the call keeps, and the three arguments of __exit__. If
    the result is not 0, it calls failed with the result and the exception of the with statement. If there is a function
    lost, the call passes it the handle first, and returns if the result is true.
    """

    def result(code: int, _: object, args: Tuple[Any, ...]) -> None:
        if lost is not None and lost(args[0]):
            return
        if code != 0:
            failed(code, args[-2])

    arguments = (_library.P, *[ctypes.c_int64] * numbers, *[ctypes.py_object] * 4)
    f = _library.function(name, *arguments, keep_gil=keep_gil)
    f.errcheck = result  # type: ignore[attr-defined]
    return f
