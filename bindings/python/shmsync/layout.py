"""Descriptions and fingerprints of ctypes types."""

from __future__ import annotations

import ctypes
import sys
from typing import Any, List, Type

from . import _library

__all__ = ["layout_of"]

_CLASSES = {
    **dict.fromkeys("bhilq", "i"),
    **dict.fromkeys("cBHILQ", "u"),
    **dict.fromkeys("fd", "f"),
    "?": "b",
}

_layout = _library.function("layout", ctypes.c_char_p, result=ctypes.c_uint64)


def _swapped(kind: Any) -> bool:
    other = "__ctype_be__" if sys.byteorder == "little" else "__ctype_le__"
    return hasattr(kind, "_swappedbytes_") or (getattr(kind, other, None) is kind and ctypes.sizeof(kind) > 1)


def describe(kind: Any) -> str:
    """Return the description of a ctypes type, from which the library computes the fingerprint.

    TypeError if a value of that type cannot live in shared memory, such as one with a pointer, or one whose bytes are
    in another order than those of this machine.
    """
    if _swapped(kind):
        raise TypeError(f"a {kind.__name__} has its bytes in another order than the numbers of this machine")
    if issubclass(kind, ctypes.Array):
        return f"[{kind._length_}] " + describe(kind._type_)
    if issubclass(kind, ctypes.Structure):
        parts: List[str] = []
        fields = [f for c in reversed(kind.__mro__) for f in c.__dict__.get("_fields_", ())]
        for field in fields:
            if len(field) > 2:
                raise TypeError(f"{kind.__name__}.{field[0]}: a bit field has no counterpart in Go")
            parts.append(f"@{getattr(kind, field[0]).offset} " + describe(field[1]))
        return "{%d %s} " % (ctypes.sizeof(kind), "".join(parts))
    code = getattr(kind, "_type_", None)
    if isinstance(code, str) and code in _CLASSES:
        return f"{_CLASSES[code]}{ctypes.sizeof(kind)} "
    raise TypeError(f"a {kind.__name__} cannot live in shared memory: it needs numbers, arrays and structures")


def layout_of(kind: Type[Any]) -> int:
    """Return the fingerprint of a ctypes type.

    It equals what ``arena.LayoutOf`` returns in Go for a type that has the same numbers at the same places.
    """
    return int(_layout(describe(kind).encode()))
