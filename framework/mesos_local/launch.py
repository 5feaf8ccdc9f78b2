"""Runs a real master or a real agent in this process, through `mesos::internal::local`, which libmesos has for tests.

`local::launch()` starts one master and N agents in one process. A master alone is N = 0. An agent alone is N = 1 with
its detector pointed at the real master; the idle master beside it is never appointed and talks to nobody.
Everything else is configured as for any Mesos: by MESOS_* and LIBPROCESS_* in the environment.
"""

from __future__ import annotations

import ctypes as c
import os
import signal
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from . import native, pinned

_PAGE = 4096
_READ_WRITE_EXECUTE = 7  # PROT_READ | PROT_WRITE | PROT_EXEC of mprotect(2)
_RET = 0xC3  # the x86-64 instruction that returns from a function


def run_master(library: str) -> None:
    """A master alone; does not return. The work dir is $MESOS_WORK_DIR."""
    _launch(native.Libmesos(library), b"master", agents=0)
    _wait_for_a_signal()


def run_agent(library: str, master: str) -> None:
    """An agent alone that registers with the master at "IP:PORT"; does not return. The work dir is $MESOS_WORK_DIR."""
    libmesos = native.Libmesos(library)
    with _does_nothing(libmesos.address(pinned.APPOINT_INFO)):
        # launch() would appoint the idle master, which would then exit because another one leads.
        _launch(libmesos, b"slave(1)", agents=1)
    upid = native.room()
    libmesos.call(pinned.UPID, native.pointer(upid), c.c_char_p(f"master@{master}".encode()))
    detector = c.c_void_p(libmesos.static_pointer(pinned.DETECTOR_AT))
    libmesos.call(pinned.APPOINT_UPID, detector, native.pointer(upid))
    _wait_for_a_signal()


def _launch(libmesos: native.Libmesos, delegate: bytes, agents: int) -> None:
    """`delegate` is the libprocess actor that answers paths without a prefix, such as /api/v1."""
    libmesos.call(pinned.INITIALIZE, native.option_string(delegate), native.option_string(), native.option_string())
    flags, master_pid = native.room(), native.room()
    libmesos.call(pinned.LOCAL_FLAGS, native.pointer(flags))
    native.put(flags, pinned.WORK_DIR_IN_FLAGS, native.string(os.environ["MESOS_WORK_DIR"].encode()))
    native.put(flags, pinned.NUM_SLAVES_IN_FLAGS, struct.pack("<i", agents))
    libmesos.call(pinned.LAUNCH, native.pointer(master_pid), native.pointer(flags), c.c_void_p(None))


@contextmanager
def _does_nothing(function: int) -> Iterator[None]:
    """Within, the function at this address returns at once."""
    libc = c.CDLL(None, use_errno=True)
    page = c.c_void_p(function & ~(_PAGE - 1))
    if libc.mprotect(page, c.c_size_t(2 * _PAGE), _READ_WRITE_EXECUTE) != 0:
        raise OSError(c.get_errno(), "mprotect")
    first = c.c_ubyte.from_address(function)
    saved, first.value = first.value, _RET
    yield
    first.value = saved


def _wait_for_a_signal() -> None:
    """Mesos works in its own threads. SIGTERM's default action ends us, as it ends `mesos-master`."""
    while True:
        signal.pause()
