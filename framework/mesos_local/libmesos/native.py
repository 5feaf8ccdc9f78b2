"""Bind one pinned libmesos build with ctypes: symbols, offsets, C++ objects.

The package index has Mesos 1.11.0 as the Python 2.7 egg of `mesos.scheduler`. Its extension module `_scheduler.so`
contains all of libmesos, master and agent included, and exports its C++ symbols. `download` verifies the digests, so
the addresses and sizes below always match the file.

libstdc++'s std::string is {char *data; size_t size; size_t capacity; 8 bytes}, 32 bytes in all. stout's Option<T> is
{int state, 0 = SOME, 1 = NONE; T}, T aligned to 8 bytes. The called functions only read these objects.
"""

from __future__ import annotations

import ctypes as c
import os
import struct

from mesos_local.host import MesosLocalError

PROJECT = "mesos.scheduler"
VERSION = "1.11.0"
EGG = "mesos.scheduler-1.11.0-py2.7-linux-x86_64.egg"
EGG_SHA256 = "4940ebb70894ee004cf8a12b7b66b52a351be1070ec2a4e6f7dae4ec04f8cb61"
MEMBER = "mesos/scheduler/_scheduler.so"  # inside the egg
LIBRARY_SHA256 = "b4c42eac577d6262d868c65cbb4d3d3ba6ff60595965bc464f4496a99d428395"  # of MEMBER after `relink`
LIBRARY = f"libmesos-{VERSION}-{LIBRARY_SHA256[:12]}.so"

# OpenSSL libraries at link time -> on current systems; relink.py explains why this works.
RENAMED_LIBRARIES = {b"libssl.so.1.0.0": b"libssl.so.3", b"libcrypto.so.1.0.0": b"libcrypto.so.3"}
OBSOLETE_VERSIONS = ("OPENSSL_1", "CURL_OPENSSL")

# Debian packages of required libraries that a small installation lacks.
DEBIAN_PACKAGES = "libsvn1 libapr1 libsasl2-2 libcurl4 libssl3"

# Mangled C++ symbols. STRING is libstdc++'s std::string, a part of many of them.
STRING = "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
INITIALIZE = f"_ZN7process10initializeERK6OptionI{STRING}ES9_S9_"
LOCAL_FLAGS = "_ZN5mesos8internal5local5FlagsC1Ev"
LAUNCH = "_ZN5mesos8internal5local6launchERKNS1_5FlagsEPNS_9allocator9AllocatorE"
APPOINT_INFO = "_ZN5mesos6master8detector24StandaloneMasterDetector7appointERK6OptionINS_10MasterInfoEE"
APPOINT_UPID = "_ZN5mesos6master8detector24StandaloneMasterDetector7appointERKN7process4UPIDE"
UPID = "_ZN7process4UPIDC1EPKc"
LAUNCHER = "_ZN5mesos8internal5slave24MesosContainerizerLaunch"
LAUNCHER_VTABLE = "_ZTVN5mesos8internal5slave24MesosContainerizerLaunchE"
CNI_SETUP = "_ZN5mesos8internal5slave23NetworkCniIsolatorSetup"
LOAD_FLAGS = f"_ZN5flags9FlagsBase4loadERK6OptionI{STRING}EiPKPKcbb"

# Addresses in the file (`nm libmesos.so`). The load address is LAUNCH's address minus LAUNCH_AT.
LAUNCH_AT = 0x2437D30
DETECTOR_AT = 0x4CEC1B8  # the static `detector` of mesos::internal::local, a pointer; static, so not exported

# Offsets in objects, from disassembling their constructors.
WORK_DIR_IN_FLAGS = 8  # mesos::internal::local::Flags: after the vtable pointer, std::string work_dir (32 bytes)
NUM_SLAVES_IN_FLAGS = 40  # then int num_slaves
FLAGS_IN_LAUNCHER = 224  # MesosContainerizerLaunch: 8 vtable pointer + 32 name + 184 Flags' virtual base

# Memory for objects of unknown size; each is far smaller.
OBJECT_SIZE = 65536

_SOME, _NONE = 0, 1
_STRING_SIZE = 32
_kept: list[object] = []  # the library keeps pointers to these until the process exits


class _DlInfo(c.Structure):
    """Dl_info of dladdr(3)."""

    _fields_ = (("file", c.c_char_p), ("base", c.c_void_p), ("symbol", c.c_char_p), ("address", c.c_void_p))


class Libmesos:
    """The loaded library, verified to be the pinned build."""

    def __init__(self, path: str) -> None:
        """Raises MesosLocalError for another build, or if a required library is missing."""
        try:
            self._library = c.CDLL(path, mode=os.RTLD_LAZY | os.RTLD_GLOBAL)
        except OSError as error:
            raise MesosLocalError(f"cannot load libmesos: {error}; on Debian install: {DEBIAN_PACKAGES}") from error
        self._base = self.address(LAUNCH) - LAUNCH_AT
        if self._base != _loaded_at(self.address(LAUNCH)):
            raise MesosLocalError(f"{path} is not the expected build of libmesos")

    def address(self, symbol: str) -> int:
        """Return the address of an exported function in this process."""
        return c.cast(self._library[symbol], c.c_void_p).value or 0

    def static_pointer(self, address_in_file: int) -> int:
        """Return the value of a pointer variable, by address: it has no exported symbol."""
        return c.c_void_p.from_address(self._base + address_in_file).value or 0

    def vtable(self, symbol: str) -> int:
        """Return the vtable pointer for objects: it skips the table's two header words."""
        return c.addressof(c.c_char.in_dll(self._library, symbol)) + 16

    def call(self, symbol: str, *arguments: object, returns: type[c.c_int | c.c_void_p] | None = None) -> int:
        """Call a function with ctypes values; pass each `pointer` as c_void_p, not int."""
        function = self._library[symbol]
        function.restype = returns
        return function(*arguments) or 0


def _loaded_at(address: int) -> int:
    info = _DlInfo()
    dladdr = c.CDLL(None).dladdr
    dladdr.argtypes = (c.c_void_p, c.POINTER(_DlInfo))
    dladdr(address, c.byref(info))
    return int(info.base or 0)


def allocate(size: int = OBJECT_SIZE) -> c.Array[c.c_char]:
    """Return zeroed memory for an object, never freed."""
    buffer = c.create_string_buffer(size)
    _kept.append(buffer)
    return buffer


def pointer(buffer: c.Array[c.c_char], offset: int = 0) -> c.c_void_p:
    """Return the address of `buffer` plus `offset`."""
    return c.c_void_p(c.addressof(buffer) + offset)


def write_bytes(buffer: c.Array[c.c_char], offset: int, content: bytes) -> None:
    """Write `content` into an object."""
    c.memmove(c.addressof(buffer) + offset, content, len(content))


def std_string(value: bytes) -> bytes:
    """Return the 32 bytes of a std::string."""
    characters = c.create_string_buffer(value)
    _kept.append(characters)
    return struct.pack("<QQQQ", c.addressof(characters), len(value), len(value), 0)


def option_string(value: bytes | None = None) -> c.c_void_p:
    """Return a pointer to an Option<std::string>; None becomes NONE."""
    state, content = (_NONE, bytes(_STRING_SIZE)) if value is None else (_SOME, std_string(value))
    buffer = allocate(8 + _STRING_SIZE)
    buffer.raw = struct.pack("<q", state) + content
    return pointer(buffer)
