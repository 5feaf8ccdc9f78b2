"""`mesos-containerizer launch`, the real code: MesosContainerizerLaunch::execute() of libmesos.

The agent runs it once for every container, so it imports little.
"""

from __future__ import annotations

import ctypes as c
import json
import os

from . import native, pinned
from .output import redirect_output


def run_launcher(library: str, arguments: list[str]) -> int:
    """`arguments` are the agent's ("launch" first), the rest in MESOS_CONTAINERIZER_*; returns the exit code."""
    launch_info = json.loads(os.environ.get("MESOS_CONTAINERIZER_LAUNCH_INFO", "{}"))
    redirect_output(launch_info.get("working_directory"))
    libmesos = native.Libmesos(library)
    subcommand = native.room()
    c.c_void_p.from_buffer(subcommand).value = libmesos.vtable(pinned.LAUNCHER_VTABLE)
    libmesos.call(f"{pinned.LAUNCHER}5FlagsC1Ev", native.pointer(subcommand, pinned.FLAGS_IN_LAUNCHER))
    _load_flags(libmesos, native.pointer(subcommand), arguments)
    return libmesos.call(f"{pinned.LAUNCHER}7executeEv", native.pointer(subcommand), returns=c.c_int)


def _load_flags(libmesos: native.Libmesos, subcommand: c.c_void_p, arguments: list[str]) -> None:
    flags = libmesos.call(f"{pinned.LAUNCHER}8getFlagsEv", subcommand, returns=c.c_void_p)
    argv = (c.c_char_p * (len(arguments) + 1))(*[a.encode() for a in arguments], None)
    libmesos.call(
        pinned.LOAD_FLAGS,
        native.pointer(native.room()),  # Try<Warnings>, the result
        c.c_void_p(flags),
        native.option_string(b"MESOS_CONTAINERIZER_"),  # prefix of the environment variables
        c.c_int(len(arguments)),
        c.byref(argv),
        c.c_bool(False),  # unknown flags are errors
        c.c_bool(False),  # so are flags given twice
    )
