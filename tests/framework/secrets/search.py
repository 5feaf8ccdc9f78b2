"""Search processes and /dev/shm for texts, as far as this user may read them.

Standard library only. Standard input: a JSON object of the texts' names and their bytes, masked and in base64, so that
no process that passes them on contains them. Prints JSON: what was found, and how much could be read.
"""

from __future__ import annotations

import base64
import json
import os
import re
import sys
from contextlib import suppress
from pathlib import Path

LARGEST = 1 << 26
NEEDLES = {
    name: bytes(byte ^ 0x55 for byte in base64.b64decode(text)) for name, text in json.loads(sys.stdin.read()).items()
}
found: list[list[str]] = []
counts = {"environ": 0, "cmdline": 0, "fd": 0, "mem": 0, "shm": 0}


def look(kind: str, place: Path, data: bytes) -> None:
    """Count the data as read, and note the needles in it."""
    counts[kind] += 1
    found.extend([kind, name, str(place)] for name, needle in NEEDLES.items() if needle in data)


def search_memory(process: Path) -> None:
    """All memory that the process can write."""
    ranges = re.findall(r"^([0-9a-f]+)-([0-9a-f]+) rw", (process / "maps").read_text(), re.MULTILINE)
    with (process / "mem").open("rb", 0) as memory:
        for start, end in ((int(start, 16), int(end, 16)) for start, end in ranges):
            with suppress(OSError, OverflowError, ValueError):
                memory.seek(start)
                look("mem", process, memory.read(min(end - start, LARGEST)))


def search_process(process: Path) -> None:
    """What /proc shows of a process."""
    for kind in ("environ", "cmdline"):
        with suppress(OSError):
            look(kind, process, (process / kind).read_bytes())
    with suppress(OSError):
        search_memory(process)
    with suppress(OSError):
        for opened in (process / "fd").iterdir():
            with suppress(OSError):
                if opened.is_file():  # a pipe would block
                    look("fd", opened, opened.read_bytes())


for folder in Path("/proc").glob("[0-9]*"):
    if int(folder.name) not in (os.getpid(), os.getppid()):
        search_process(folder)
for top, _, names in os.walk("/dev/shm"):
    for path in (Path(top, name) for name in names):
        with suppress(OSError):
            look("shm", path, path.read_bytes())
print(json.dumps({"found": found, "counts": counts}))
