"""What was made of many files, for as long as none of them changes: told by times and sizes, not by reading them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from tf_scheduler.pyz import BundleError, write

#: Path -> time of the last change in nanoseconds, and size. Of a folder too: it changes when a file comes or goes.
Watched = Mapping[str, list[int]]


def watched(paths: Iterable[Path]) -> Watched:
    """As they are now; what is not there is left out, and noticed when it comes by the folder that it is in."""
    return {str(path): found for path in paths if (found := _seen(path)) is not None}


def remembered(stamp: Path) -> str | None:
    """What was written there, if all that was watched is as it was."""
    try:
        found = json.loads(stamp.read_text())
        same = all(_seen(Path(path)) == seen for path, seen in found["watched"].items())
        return str(found["value"]) if same else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def remember(stamp: Path, value: str, files: Watched) -> None:
    """`files`: from before they were read. Where nothing can be written, it is made anew each time."""
    try:
        write(json.dumps({"value": value, "watched": files}).encode(), stamp, "the stamp", 0o644)
    except BundleError:
        return


def _seen(path: Path) -> list[int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return [found.st_mtime_ns, found.st_size]
