"""What of a task's output `local run` shows and keeps: no secrets."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tf_scheduler.api.policy import Policy
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.options.loader import resolve
from tf_scheduler.telling.masks import Masks

from .known_secrets import KNOWN, known_secrets
from .tail import last_lines


class Words:
    """Secrets that we know are masked. A task that gets others is not quoted: its executor knows them."""

    def __init__(self, spec: ServiceSpec, masks: Masks) -> None:
        self._masks = masks
        unknown = [item for item in spec.secrets if not item.source.startswith(KNOWN)]
        self._all = not unknown
        self._open = {task.name for task in spec.tasks() if not any(item.is_for(task.job.group) for item in unknown)}

    def knows(self, task: str) -> bool:
        """All that the task may say by mistake."""
        return self._all or task in self._open

    def last(self, task: str, file: Path, count: int) -> list[str]:
        """The last lines of its output; none of one that is not quoted."""
        return [self._masks.cover(line) for line in last_lines(file, count)] if self.knows(task) else []


def words_of(spec: ServiceSpec, document: Mapping[str, Any]) -> Words:
    """`document`: its options. Secrets are known from them, and from our own variables."""
    return Words(spec, Masks(known_secrets(resolve(document), os.environ, Policy())))
