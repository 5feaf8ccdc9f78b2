"""Run a Mesos master, agent or container launcher in this process with libmesos.

`mesos::internal::local::launch()`, made for tests, starts one master and N agents in one process. For a master alone, N
is 0. For an agent alone, N is 1 and the agent's detector finds the real master; the other master in its process stays
idle, because nothing appoints it. Flags come from MESOS_* and LIBPROCESS_* in the environment, as for any Mesos.
"""

from __future__ import annotations

import ctypes as c
import json
import os
import signal
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from mesos_local.host import redirect_output

from . import native

_PAGE = 4096
_READ_WRITE_EXECUTE = 7  # PROT_READ | PROT_WRITE | PROT_EXEC of mprotect(2)
_SYSRQ = "/proc/sysrq-trigger"  # Mesos mounts it read-only; some kernels lack it
_RET = 0xC3  # the x86-64 instruction that returns from a function


def run_master(library: str) -> None:
    """Run a master with work dir $MESOS_WORK_DIR; does not return."""
    _launch(native.Libmesos(library), b"master", agents=0)
    _wait_for_a_signal()


def run_agent(library: str, master: str) -> None:
    """Run an agent of the master at "IP:PORT"; does not return."""
    libmesos = native.Libmesos(library)
    with _disabled(libmesos.address(native.APPOINT_INFO)):
        # launch() would appoint the idle master, which would then exit because another one leads.
        _launch(libmesos, b"slave(1)", agents=1)
    upid = native.allocate()
    libmesos.call(native.UPID, native.pointer(upid), c.c_char_p(f"master@{master}".encode()))
    detector = c.c_void_p(libmesos.static_pointer(native.DETECTOR_AT))
    libmesos.call(native.APPOINT_UPID, detector, native.pointer(upid))
    _wait_for_a_signal()


def _launch(libmesos: native.Libmesos, delegate: bytes, agents: int) -> None:
    """Start libprocess and Mesos. `delegate`: actor that serves paths without prefix."""
    libmesos.call(native.INITIALIZE, native.option_string(delegate), native.option_string(), native.option_string())
    flags, master_pid = native.allocate(), native.allocate()
    libmesos.call(native.LOCAL_FLAGS, native.pointer(flags))
    native.write_bytes(flags, native.WORK_DIR_IN_FLAGS, native.std_string(os.environ["MESOS_WORK_DIR"].encode()))
    native.write_bytes(flags, native.NUM_SLAVES_IN_FLAGS, struct.pack("<i", agents))
    libmesos.call(native.LAUNCH, native.pointer(master_pid), native.pointer(flags), c.c_void_p(None))


@contextmanager
def _disabled(function: int) -> Iterator[None]:
    """Make the function at this address return immediately, within the block."""
    libc = c.CDLL(None, use_errno=True)
    page = c.c_void_p(function & ~(_PAGE - 1))
    if libc.mprotect(page, c.c_size_t(2 * _PAGE), _READ_WRITE_EXECUTE) != 0:
        raise OSError(c.get_errno(), "mprotect")
    first = c.c_ubyte.from_address(function)
    saved, first.value = first.value, _RET
    yield
    first.value = saved


def _wait_for_a_signal() -> None:
    """Wait while Mesos runs in its threads; SIGTERM ends the process by default."""
    while True:
        signal.pause()


def run_containerizer(library: str, arguments: list[str]) -> int:
    """Run a sub-command of `mesos-containerizer`; return the exit code.

    `arguments`: those that the agent passes. It passes further flags in MESOS_CONTAINERIZER_*.
    """
    libmesos, subcommand = native.Libmesos(library), native.allocate()
    if arguments[:1] == ["network-cni-setup"]:
        libmesos.call(f"{native.CNI_SETUP}C1Ev", native.pointer(subcommand))
        return _execute(libmesos, native.CNI_SETUP, subcommand, arguments)
    # Remove mounts of files that this kernel lacks.
    launch_info: dict[str, Any] = json.loads(os.environ.get("MESOS_CONTAINERIZER_LAUNCH_INFO", "{}"))
    if mounts := launch_info.get("mounts"):
        launch_info["mounts"] = [mount for mount in mounts if not mount.get("target", "").endswith(_SYSRQ)]
        os.environ["MESOS_CONTAINERIZER_LAUNCH_INFO"] = json.dumps(launch_info)
    c.c_void_p.from_buffer(subcommand).value = libmesos.vtable(native.LAUNCHER_VTABLE)
    libmesos.call(f"{native.LAUNCHER}5FlagsC1Ev", native.pointer(subcommand, native.FLAGS_IN_LAUNCHER))
    redirect_output(_sandbox(launch_info))
    return _execute(libmesos, native.LAUNCHER, subcommand, arguments)


def _sandbox(launch_info: Mapping[str, Any]) -> str | None:
    """Return the sandbox's path on this machine; None if the agent names none."""
    if not launch_info.get("rootfs"):
        return launch_info.get("working_directory")
    variables = launch_info.get("environment", {}).get("variables", [])
    return next((each.get("value") for each in variables if each.get("name") == "MESOS_DIRECTORY"), None)


def _execute(libmesos: native.Libmesos, kind: str, subcommand: c.Array[c.c_char], arguments: list[str]) -> int:
    flags = libmesos.call(f"{kind}8getFlagsEv", native.pointer(subcommand), returns=c.c_void_p)
    argv = (c.c_char_p * (len(arguments) + 1))(*[a.encode() for a in arguments], None)
    libmesos.call(
        native.LOAD_FLAGS,
        native.pointer(native.allocate()),  # Try<Warnings>, the result
        c.c_void_p(flags),
        native.option_string(b"MESOS_CONTAINERIZER_"),  # prefix of the environment variables
        c.c_int(len(arguments)),
        c.byref(argv),
        c.c_bool(False),  # unknown flags are errors
        c.c_bool(False),  # so are flags given twice
    )
    return libmesos.call(f"{kind}7executeEv", native.pointer(subcommand), returns=c.c_int)
