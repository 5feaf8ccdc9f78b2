"""C++ objects and functions of libmesos through ctypes. Knows the ABI; what is called and why is in `launch`.

libstdc++'s std::string is {char *data; size_t size; size_t capacity; 8 bytes}, 32 bytes in all. stout's Option<T> is
{int state, 0 = SOME, 1 = NONE; T}, T aligned to 8 bytes. Both are only read by what we call.
"""

from __future__ import annotations

import ctypes as c
import os
import struct

from .errors import MesosLocalError
from .pinned import DEBIAN_PACKAGES, LAUNCH, LAUNCH_AT, OBJECT_ROOM

_SOME, _NONE = 0, 1
_STRING_SIZE = 32
_kept: list[object] = []  # the library keeps pointers into these for as long as the process lives


class _DlInfo(c.Structure):
    """Dl_info of dladdr(3)."""

    _fields_ = (("file", c.c_char_p), ("base", c.c_void_p), ("symbol", c.c_char_p), ("address", c.c_void_p))


class Libmesos:
    """The library, loaded and known to be the pinned build."""

    def __init__(self, path: str) -> None:
        """Raises MesosLocalError if a library that it needs is missing, or if it is another build."""
        try:
            self._library = c.CDLL(path, mode=os.RTLD_LAZY | os.RTLD_GLOBAL)
        except OSError as error:
            raise MesosLocalError(
                f"libmesos cannot be loaded: {error}. It needs, in Debian's names: {DEBIAN_PACKAGES}."
            ) from error
        self._base = self.address(LAUNCH) - LAUNCH_AT
        if self._base != _loaded_at(self.address(LAUNCH)):
            raise MesosLocalError(f"{path} is not the build of libmesos that this program knows.")

    def address(self, symbol: str) -> int:
        """Where an exported function is, in this process."""
        return c.cast(self._library[symbol], c.c_void_p).value or 0

    def static_pointer(self, address_in_file: int) -> int:
        """The value of a pointer variable that is not exported."""
        return c.c_void_p.from_address(self._base + address_in_file).value or 0

    def vtable(self, symbol: str) -> int:
        """What an object's vtable pointer holds: the table's address after its two words of header."""
        return c.addressof(c.c_char.in_dll(self._library, symbol)) + 16

    def call(self, symbol: str, *arguments: object, returns: type[c.c_int | c.c_void_p] | None = None) -> int:
        """Call a function with ctypes values; a plain int would be cut to 32 bits, so pass `pointer`s as c_void_p."""
        function = self._library[symbol]
        function.restype = returns
        return function(*arguments) or 0


def _loaded_at(address: int) -> int:
    info = _DlInfo()
    dladdr = c.CDLL(None).dladdr
    dladdr.argtypes = (c.c_void_p, c.POINTER(_DlInfo))
    dladdr(address, c.byref(info))
    return int(info.base or 0)


def room(size: int = OBJECT_ROOM) -> c.Array[c.c_char]:
    """Zeroed memory for an object, kept for ever."""
    buffer = c.create_string_buffer(size)
    _kept.append(buffer)
    return buffer


def pointer(buffer: c.Array[c.c_char], offset: int = 0) -> c.c_void_p:
    """The address of `buffer`, plus `offset` bytes."""
    return c.c_void_p(c.addressof(buffer) + offset)


def put(buffer: c.Array[c.c_char], offset: int, content: bytes) -> None:
    """Write `content` into an object."""
    c.memmove(c.addressof(buffer) + offset, content, len(content))


def string(value: bytes) -> bytes:
    """The 32 bytes of a std::string."""
    characters = c.create_string_buffer(value)
    _kept.append(characters)
    return struct.pack("<QQQQ", c.addressof(characters), len(value), len(value), 0)


def option_string(value: bytes | None = None) -> c.c_void_p:
    """Pointer to an Option<std::string>; None is NONE."""
    state, content = (_NONE, bytes(_STRING_SIZE)) if value is None else (_SOME, string(value))
    buffer = room(8 + _STRING_SIZE)
    buffer.raw = struct.pack("<q", state) + content
    return pointer(buffer)
