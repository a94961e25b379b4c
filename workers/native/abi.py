"""`toolsd_source.h`, ABI 1, as ctypes sees it: the same structs, in the same order.

Owns their layout. Must not know batches or what is done with a result.
"""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint32, c_void_p

ABI = 1
ENTRY = "toolsd_source_entry"
NO_DEADLINE = 2**63 - 1
IDEMPOTENT = 1
TELLS = 1
EMPTY, TEXT, JSON, BYTES, ERROR = range(5)


class Text(ctypes.Structure):
    _fields_ = (("data", c_char_p), ("size", c_size_t))


class Allocator(ctypes.Structure):
    _fields_ = (("allocate", c_void_p), ("release", c_void_p))


class Tool(ctypes.Structure):
    _fields_ = (("name", c_char_p), ("description", c_char_p), ("parameters", c_char_p), ("flags", c_uint32))


class Call(ctypes.Structure):
    _fields_ = (("tool_index", c_uint32), ("tool", Text), ("id", Text), ("arguments", Text))


class Result(ctypes.Structure):
    _fields_ = (("kind", c_uint32), ("mime", c_char_p), ("data", c_void_p), ("size", c_size_t))


CANCELLED = CFUNCTYPE(c_int, c_void_p)
MARK = CFUNCTYPE(None, c_void_p, c_size_t)
PROGRESS = CFUNCTYPE(None, c_void_p, c_size_t, c_double, c_double, c_char_p)
WRITE = CFUNCTYPE(None, c_void_p, c_size_t, c_void_p, c_size_t)
LOG = CFUNCTYPE(None, c_void_p, c_size_t, c_int, c_char_p)
FAIL = CFUNCTYPE(None, c_void_p, c_char_p)


class Context(ctypes.Structure):
    _fields_ = (
        ("host", c_void_p),
        ("turn", Text),
        ("session", Text),
        ("deadline", c_int64),
        ("cancelled", CANCELLED),
        ("started", MARK),
        ("finished", MARK),
        ("progress", PROGRESS),
        ("write", WRITE),
        ("log", LOG),
        ("fail", FAIL),
    )


INVOKE = CFUNCTYPE(c_int32, c_void_p, POINTER(Context), POINTER(Call), POINTER(Result), c_size_t, POINTER(Allocator))
DEINIT = CFUNCTYPE(None, c_void_p)


class Source(ctypes.Structure):
    _fields_ = (
        ("abi", c_uint32),
        ("flags", c_uint32),
        ("name", c_char_p),
        ("tools", POINTER(Tool)),
        ("tool_count", c_size_t),
        ("state", c_void_p),
        ("invoke_batch", INVOKE),
        ("deinit", DEINIT),
    )


class HostVersions(ctypes.Structure):
    _fields_ = (("abi_oldest", c_uint32), ("abi_newest", c_uint32), ("fail", FAIL))


def text(value: str | None) -> Text:
    """The struct keeps what it points to."""
    if value is None:
        return Text(None, 0)
    data = value.encode("utf-8", "surrogateescape")
    return Text(data, len(data))


_libc = ctypes.CDLL(None)
_libc.free.argtypes = (c_void_p,)
_libc.free.restype = None


def allocator() -> Allocator:
    """The C library's own: nothing of it is Python's, so it may be used from any thread."""
    return Allocator(ctypes.cast(_libc.malloc, c_void_p).value, ctypes.cast(_libc.free, c_void_p).value)


def release(address: int) -> None:
    """Free what `allocator` gave. A pointer it did not give ends the process, as in C."""
    _libc.free(address)
