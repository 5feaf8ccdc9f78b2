"""`secrets`: values that tasks need and nobody else may see."""

from __future__ import annotations

from tf_scheduler.options.fields import Text

from .base import Section, about


class SecretRecord(Section):
    source = Text(
        required=True, filled=True, metadata=about("Where the value is, such as its path in the secret store.")
    )
    env = Text(load_default="", metadata=about("Environment variable that gets the value."))
    file = Text(load_default="", metadata=about("File in the working directory that gets it instead."))
    jobs = Text(
        load_default="",
        metadata=about(
            "Sections whose tasks get it, with commas between; empty: all.", examples=["chief", "worker,gpu_worker"]
        ),
    )
