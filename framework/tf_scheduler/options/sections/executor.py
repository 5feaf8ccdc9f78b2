"""`executor`: the program of ours that carries each task on an agent."""

from __future__ import annotations

from tf_scheduler.options.fields import Number, Text, Whole

from .base import Section, about


class ExecutorSection(Section):
    url = Text(load_default="", metadata=about("Where the agents fetch the executor's bundle."))
    python = Text(
        load_default="python3",
        filled=True,
        metadata=about("Interpreter on the agents that runs the executor: 3.8 or newer."),
    )
    cpus = Number(load_default=0.1, least=0.01, most=64.0, metadata=about("CPUs of each executor.", "cores"))
    output_bytes = Whole(
        load_default=32 << 20,
        least=1 << 16,
        most=1 << 40,
        metadata=about(
            "Size of a task's standard output, and of its standard error, before the file is rotated.", "bytes"
        ),
    )
    output_backups = Whole(load_default=3, most=100, metadata=about("How many older files of each are kept."))
    mem = Whole(load_default=64, least=32, most=65_536, metadata=about("Memory of each executor.", "MB"))
