"""`volumes`: folders of the agents that tasks see."""

from __future__ import annotations

from tf_scheduler.options.fields import Text

from .base import Section, about

#: As mesos.proto has them, Volume.Mode.
READ_WRITE, READ_ONLY = "RW", "RO"


class VolumeRecord(Section):
    host_path = Text(
        required=True,
        filled=True,
        metadata=about("Folder or file of the agents, absolute; it must be there.", examples=["/mnt/nfs/mnist"]),
    )
    container_path = Text(
        required=True,
        filled=True,
        metadata=about(
            "Where tasks find it: absolute, or below their working directory. Without an image an absolute one must be "
            "a folder of the agents, too.",
            examples=["data", "/data"],
        ),
    )
    mode = Text(
        load_default=READ_WRITE,
        choices=(READ_WRITE, READ_ONLY),
        metadata=about("Whether tasks may write there: RW, or RO for reading only."),
    )
    jobs = Text(
        load_default="",
        metadata=about(
            "Sections whose tasks get it, with commas between; empty: all.", examples=["worker,gpu_worker", "evaluator"]
        ),
    )
