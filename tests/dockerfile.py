"""Reads a Dockerfile: as much of its language as ours uses."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Stage:
    """From one FROM to the next. `env` as it is at the stage's end."""

    name: str
    base: str
    steps: list[tuple[str, str]] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)

    def values(self, instruction: str) -> list[str]:
        return [text for name, text in self.steps if name == instruction]

    def words(self, instruction: str) -> list[str]:
        """The list of CMD, ENTRYPOINT or HEALTHCHECK ... CMD."""
        words: list[str] = json.loads("[" + self.values(instruction)[-1].partition("[")[2])
        return words


def read(path: Path) -> dict[str, Stage]:
    """Stages by name, in their order."""
    text = re.sub(r"(?m)^\s*#.*\n", "", path.read_text())
    arguments: dict[str, str] = {}
    stages: dict[str, Stage] = {}
    current = Stage("", "")
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        name, _, rest = line.strip().partition(" ")
        if name == "ARG":
            key, _, value = rest.partition("=")
            (current.env if stages else arguments)[key] = value.strip('"')
        elif name == "FROM":
            image, _, stage = rest.partition(" AS ")
            current = stages[stage] = Stage(stage, re.sub(r"\$\{(\w+)\}", lambda found: arguments[found[1]], image))
        elif name:
            current.steps.append((name, rest.strip()))
            if name == "ENV":
                current.env.update(pair.partition("=")[::2] for pair in rest.split())
    return stages


def copies(stage: Stage) -> list[tuple[str | None, list[str], str]]:
    """Return (source stage, None for the build context; sources; target) of each COPY."""
    found = []
    for text in stage.values("COPY"):
        words = text.split()
        origin = words.pop(0).removeprefix("--from=") if words[0].startswith("--from=") else None
        found.append((origin, words[:-1], words[-1]))
    return found
