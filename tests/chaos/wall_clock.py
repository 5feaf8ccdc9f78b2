"""The wall clock of a scheduler, which a fault steps."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from pathlib import Path

_FOLDER = Path(__file__).parent / "clock"


class WallClock:
    """`variables`: environment of the process whose wall clock it is."""

    def __init__(self, path: Path) -> None:
        self._path = path
        found = os.environ.get("PYTHONPATH", "")
        path_variable = os.pathsep.join(filter(None, (str(_FOLDER), found)))
        self.variables: Mapping[str, str] = {"PYTHONPATH": path_variable, "CHAOS_CLOCK": str(path)}
        path.write_bytes(struct.pack("d", 0.0))

    def set(self, seconds: float) -> None:
        """Let the clock be ahead of the machine's by this."""
        with self._path.open("r+b") as file:
            file.write(struct.pack("d", seconds))
