"""Resolved options -> which tasks see which folders of their agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tf_scheduler.model.volume import Volume

from .sections.volumes import READ_ONLY
from .words import words

Document = Mapping[str, Any]


def volumes_of(options: Document, section: str) -> tuple[Volume, ...]:
    """Of the tasks of a section, in the order of the options."""
    return tuple(
        Volume(record["host_path"], record["container_path"], record["mode"] == READ_ONLY)
        for record in options["volumes"]
        if not record["jobs"].strip() or section in words(record["jobs"])
    )
