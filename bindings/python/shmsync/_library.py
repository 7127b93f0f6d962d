"""The library libshmsync: its path, its types and its functions."""

from __future__ import annotations

import ctypes
import errno
import operator
import os
import sys
from typing import Any, Callable, ClassVar, List, Optional, Sequence, Tuple, Union

from . import errors

__all__: List[str] = []

SONAME = "libshmsync.so.0"

# The layout of arenas and the size of machine words, with the value of SHMSYNC_ABI in the header.
ABI = 10 << 8 | 8

if not sys.platform.startswith("linux") or ctypes.sizeof(ctypes.c_void_p) != 8:
    raise ImportError("shmsync needs Linux and a 64-bit Python")


def _interpreter() -> int:
    """Return the number of this interpreter in the process. That of the main interpreter is 0."""
    api: Any = getattr(ctypes, "pythonapi", None)
    if not hasattr(api, "PyInterpreterState_GetID"):
        return 0
    get, number = api.PyInterpreterState_Get, api.PyInterpreterState_GetID
    get.restype, number.argtypes, number.restype = ctypes.c_void_p, (ctypes.c_void_p,), ctypes.c_int64
    return int(number(get()))


# The module in C has global variables, and a thread of the library that calls a function enters the main interpreter.
if _interpreter() != 0:
    raise ImportError("shmsync needs the main interpreter of the process")


def _load() -> str:
    """Return the name under which the library is loaded."""
    named = os.environ.get("SHMSYNC_LIBRARY")
    if named:
        return named
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), SONAME)
    return beside if os.path.exists(beside) else SONAME


PATH = _load()
try:
    # A call through CDLL releases the global interpreter lock, and a call through PyDLL keeps it.
    released = ctypes.CDLL(PATH)
    kept = ctypes.PyDLL(PATH)
except OSError as failure:
    raise ImportError(
        f"shmsync cannot load {PATH}: {failure}. Build the library with 'make -C c' in the repository of shmsync, "
        "and install it, or set SHMSYNC_LIBRARY to its path"
    ) from failure


class Handle(ctypes.Structure):
    """A handle of an object. The handles of all kinds have this form."""

    _fields_ = [("impl", ctypes.c_void_p), ("serial", ctypes.c_uint64)]


class Timespec(ctypes.Structure):
    """An absolute CLOCK_MONOTONIC time."""

    _fields_ = [("tv_sec", ctypes.c_int64), ("tv_nsec", ctypes.c_int64)]


class RawParticipant(ctypes.Structure):
    """shmsync_participant."""

    _fields_ = [
        ("slot", ctypes.c_uint32),
        ("generation", ctypes.c_uint32),
        ("pid", ctypes.c_uint32),
        ("missed", ctypes.c_uint32),
        ("died_ns", ctypes.c_int64),
        ("label", ctypes.c_char * 64),
    ]


class Lease(ctypes.Structure):
    """shmsync_lease."""

    _fields_ = [
        ("impl", ctypes.c_void_p),
        ("serial", ctypes.c_uint64),
        ("seq", ctypes.c_uint64),
        ("state", ctypes.c_uint64),
        ("at", ctypes.c_uint32),
        ("attempts", ctypes.c_uint32),
    ]


class Options(ctypes.Structure):
    """The fields with which every struct of options begins."""

    _fields_: ClassVar[Sequence[Tuple[str, Any]]] = [("struct_size", ctypes.c_uint32), ("flags", ctypes.c_uint32)]

    def __init__(self, **values: Any) -> None:
        super().__init__(struct_size=ctypes.sizeof(self), **values)
        for name, value in values.items():
            if isinstance(value, int) and getattr(self, name) != value:
                raise ValueError(f"{name} is {value}, which does not fit")


class ArenaOptions(Options):
    """shmsync_arena_options."""

    _fields_ = [
        ("size", ctypes.c_uint64),
        ("max_participants", ctypes.c_uint32),
        ("mode", ctypes.c_uint32),
        ("label", ctypes.c_char_p),
        ("trust_uids", ctypes.c_void_p),
        ("n_trust_uids", ctypes.c_size_t),
        ("attach_only", ctypes.c_int),
        ("kernel_io", ctypes.c_int),
        ("on_first", ctypes.c_void_p),
        ("on_first_arg", ctypes.c_void_p),
        ("recreate", ctypes.c_uint32),
        ("lifetime", ctypes.c_int),
        ("gate_timeout_ns", ctypes.c_int64),
        ("on_detached", ctypes.c_void_p),
        ("on_detached_arg", ctypes.c_void_p),
    ]


class MutexOptions(Options):
    """shmsync_mutex_options."""

    _fields_ = [
        ("policy", ctypes.c_int),
        ("spin_ns", ctypes.c_int64),
        ("checked", ctypes.c_int),
        ("repair", ctypes.c_void_p),
        ("repair_arg", ctypes.c_void_p),
        ("log_bytes", ctypes.c_uint64),
    ]


class RWMutexOptions(Options):
    """shmsync_rwmutex_options."""

    _fields_ = [
        ("policy", ctypes.c_int),
        ("repair", ctypes.c_void_p),
        ("repair_arg", ctypes.c_void_p),
        ("spin_ns", ctypes.c_int64),
        ("log_bytes", ctypes.c_uint64),
    ]


class SemaphoreOptions(Options):
    """shmsync_semaphore_options."""

    _fields_ = [("transferable", ctypes.c_int), ("initial", ctypes.c_int64), ("spin_ns", ctypes.c_int64)]


class EventOptions(Options):
    """shmsync_event_options."""

    _fields_ = [
        ("auto_reset", ctypes.c_int),
        ("bidirectional", ctypes.c_int),
        ("set", ctypes.c_int),
        ("spin_ns", ctypes.c_int64),
    ]


class SequencerOptions(Options):
    """shmsync_sequencer_options."""

    _fields_ = [("initial", ctypes.c_uint64), ("spin_ns", ctypes.c_int64)]


class QueueOptions(Options):
    """shmsync_queue_options."""

    _fields_ = [
        ("capacity", ctypes.c_uint32),
        ("layout", ctypes.c_uint64),
        ("spin_ns", ctypes.c_int64),
        ("type", ctypes.c_char_p),
    ]


class SynchronizedOptions(Options):
    """shmsync_synchronized_options."""

    _fields_ = [
        ("initial", ctypes.c_void_p),
        ("layout", ctypes.c_uint64),
        ("spin_ns", ctypes.c_int64),
        ("type", ctypes.c_char_p),
    ]


# The function of shmsync_wait_hook. Its argument is always NULL here, and a function in Python does not get it.
WaitHook = ctypes.CFUNCTYPE(ctypes.c_int)
Repair = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
OnParticipant = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(RawParticipant), ctypes.c_void_p)
OnDeath = ctypes.CFUNCTYPE(None, ctypes.POINTER(RawParticipant), ctypes.c_void_p)


def function(name: str, *argtypes: Any, result: Any = ctypes.c_int, keep_gil: bool = False) -> Callable[..., Any]:
    """Return the library's function of that name.

    Without argtypes it takes pointers only: results of byref, ctypes objects, bytes and None. keep_gil makes a call
    cheaper, and is right only for a function that never waits.
    """
    f = (kept if keep_gil else released)["shmsync_" + name]
    if argtypes:
        f.argtypes = argtypes
    f.restype = result
    return f


P = ctypes.c_void_p
_error = function("error", result=ctypes.c_char_p, keep_gil=True)
_who_died = function("who_died", keep_gil=True)


def fits(value: int, lowest: int, highest: int, what: str) -> int:
    """Return a number that is between two limits. Any other is an error, since ctypes would cut it to its low bits."""
    n = operator.index(value)
    if not lowest <= n <= highest:
        raise ValueError(f"{what} is {n}, which is not between {lowest} and {highest}")
    return n


def i64(value: int, what: str) -> int:
    """Return a number that fits into 64 bits with a sign."""
    return fits(value, -1 << 63, (1 << 63) - 1, what)


def u64(value: int, what: str) -> int:
    """Return a number that fits into 64 bits without a sign."""
    return fits(value, 0, (1 << 64) - 1, what)


def text(value: str, what: str) -> bytes:
    """Return a text for the library, which ends at the first NUL."""
    if "\0" in value:
        raise ValueError(f"{what} {value!r} has a NUL character")
    return value.encode()


def participant(raw: RawParticipant) -> errors.Participant:
    """Copy a participant out of the library's memory."""
    label: bytes = raw.label
    return errors.Participant(raw.slot, raw.generation, raw.pid, label.decode("utf-8", "replace"), raw.died_ns)


def path(name: Union[str, bytes, os.PathLike[str], os.PathLike[bytes]]) -> bytes:
    """Return the name of an arena for the library. A path object is always a path, even if it has no slash."""
    encoded = os.fsencode(name)
    if b"\0" in encoded:
        raise ValueError(f"the name {name!r} has a NUL character")
    if b"/" not in encoded and not isinstance(name, (str, bytes)):
        return b"./" + encoded
    return encoded


def failure_of(code: int, of_file: bool = False) -> errors.Error:
    """Return the exception for the last failure of the calling thread, whose result was code.

    of_file says whether the call was about the file of an arena.
    """
    text: bytes = _error() or b""
    died: Optional[errors.Participant] = None
    if code in (errno.EOWNERDEAD, errno.ENOTRECOVERABLE):
        raw = RawParticipant()
        if _who_died(ctypes.byref(raw)) == 0:
            died = participant(raw)
    return errors.make(code, text.decode("utf-8", "replace"), died, of_file)


def check(code: int, of_file: bool = False) -> None:
    """Raise the exception for a result that is not 0."""
    if code != 0:
        raise failure_of(code, of_file)


def version() -> str:
    """Return the version of the loaded library, such as "0.1.0"."""
    text: bytes = function("version", result=ctypes.c_char_p)()
    return text.decode()
