"""In a scheduler's process: step the wall clock of Python by a file's number.

The `faketime` library is not an alternative: under it (0.9.10) time.sleep() of Python fails with EINVAL.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path

with Path(os.environ["CHAOS_CLOCK"]).open("rb") as file:
    _seconds = mmap.mmap(file.fileno(), struct.calcsize("d"), prot=mmap.PROT_READ)
_wall = time.time


def _stepped() -> float:
    return _wall() + float(struct.unpack_from("d", _seconds)[0])


time.time = _stepped
