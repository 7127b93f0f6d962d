"""Descriptions and fingerprints of ctypes types."""

from __future__ import annotations

import ctypes
import re
import sys
from typing import Any, List, Optional, Tuple, Type

from . import _library

__all__ = ["description_of", "layout_of"]

# What the library accepts in a description: bytes of the whole, bytes of the path of a field, and nested types.
_MOST, _PATH, _DEPTH = 4095, 250, 14

_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")

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
            name = field[0] if _NAME.fullmatch(field[0]) else ""
            parts.append(f"{name}@{getattr(kind, field[0]).offset} " + describe(field[1]))
        return "{%d %s} " % (ctypes.sizeof(kind), "".join(parts))
    code = getattr(kind, "_type_", None)
    if isinstance(code, str) and code in _CLASSES:
        return f"{_CLASSES[code]}{ctypes.sizeof(kind)} "
    raise TypeError(f"a {kind.__name__} cannot live in shared memory: it needs numbers, arrays and structures")


def _extent(kind: Any) -> Tuple[int, int]:
    """Return the length of the longest path of a field, and how deep the types are nested."""
    if issubclass(kind, ctypes.Array):
        path, depth = _extent(kind._type_)
        return path + 2, depth + 1
    if issubclass(kind, ctypes.Structure):
        fields = [f for c in kind.__mro__ for f in c.__dict__.get("_fields_", ())]
        below = [(len(f[0]) + 1 + path, depth) for f in fields for path, depth in [_extent(f[1])]]
        return max((p for p, _ in below), default=0), 1 + max((d for _, d in below), default=0)
    return 0, 1


def description_of(kind: Type[Any]) -> Optional[bytes]:
    """Return the description of a ctypes type with the names of its fields.

    The library keeps it in a new object, names in errors the fields that differ, and shmctl shows values by field.
    None if the library would not accept the description, because of a name or a size. The caller then gives the
    fingerprint instead.
    """
    text = describe(kind)
    path, depth = _extent(kind)
    named = all(not part.startswith("@") for part in text.split())
    return text.encode() if named and len(text) <= _MOST and path <= _PATH and depth <= _DEPTH else None


def layout_of(kind: Type[Any]) -> int:
    """Return the fingerprint of a ctypes type.

    It equals what ``arena.LayoutOf`` returns in Go for a type that has the same numbers at the same places.
    """
    return int(_layout(describe(kind).encode()))
