"""`scheduler`: the process that does all this, as Marathon runs it."""

from __future__ import annotations

from tf_scheduler.options.fields import Flag, Number, Text, Whole

from .base import Change, Section, about


class SchedulerSection(Section):
    cpus = Number(
        load_default=0.5, least=0.01, most=64.0, unit="cores", metadata=about("CPUs of the scheduler.", "cores")
    )
    mem = Whole(load_default=512, least=128, most=65_536, metadata=about("Memory of the scheduler.", "MB"))
    containerized = Flag(
        load_default=True,
        metadata=about("Run the scheduler in a container image; otherwise with the agent's own Python."),
    )
    image = Text(
        load_default="",
        metadata=about(
            "That image; empty: the one that the package names. It needs Python 3.12 or newer and nothing else.",
            examples=["python:3.13-slim-bookworm"],
        ),
    )
    python = Text(
        load_default="python3",
        filled=True,
        # Marathon has it in a line for a shell.
        pattern=r"[A-Za-z0-9_./][A-Za-z0-9_./+@:-]*",
        wanted="a name or a path, without white space and what means something to a shell",
        metadata=about("The interpreter that runs the scheduler, in the image or on the agent."),
    )
    state = Text(
        load_default="zk://master.mesos:2181",
        filled=True,
        metadata=about(
            "Where the scheduler's state survives: zk://host:port,host:port/path for ZooKeeper, or a file of this "
            "machine as file:///folder/state.db.",
            change=Change.FIXED,
            examples=["zk://10.0.0.1:2181,10.0.0.2:2181/mesos-frameworks"],
        ),
    )
