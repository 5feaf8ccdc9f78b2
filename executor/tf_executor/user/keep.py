"""Keep files of a working directory in CHECKPOINT_DIR/kept-files. Python 3.6.

kept-files/LAUNCH/model.keras   a copy; LAUNCH is the id of the task's launch
kept-files/LAUNCH.json          {"launch": id, "task": "worker-0", "folder": place of the copies,
                                "kept": [[name, bytes], ...], "left": [[name, bytes, why], ...]}; the newest files first
"""

import json
import os
import re
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Dict, List, Tuple

#: Below CHECKPOINT_DIR.
FOLDER = "kept-files"
#: Logs of a task, with those that were rotated.
_LOGS = re.compile(r"(stdout|stderr|executor\.log)(\.\d+(\.gz)?|\.times|\.logrotate\.\w+)?")
#: Hidden files and folders of the executor, and what libraries write into the home folder.
_OWN = (".tf_executor", ".exec", ".storage", ".keras", ".cache", ".config")
#: Maximum number of files that are kept.
_MAX_FILES = 10000
#: Maximum seconds between two times of a file system.
_LONGEST_TICK = 3.0

_Kept = List[Tuple[str, int]]
_Left = List[Tuple[str, int, str]]


def next_file_time(folder: str) -> float:
    """Return a time that is after the changes of all files in a folder so far.

    By the clock of its file system, which advances every few milliseconds. Raises OSError.
    """
    marker, end = Path(folder, ".tf_executor.started"), time.monotonic() + _LONGEST_TICK
    marker.touch()
    first = now = marker.stat().st_mtime
    while now == first and time.monotonic() < end:
        marker.touch()
        now = marker.stat().st_mtime
    return now


def new_files(sandbox: str, checkpoints: str, since: float) -> Tuple[_Kept, _Left]:
    """Return files written since then, the newest first; and what is left out.

    Checkpoints, the task's logs and caches of Python do not count. A hidden folder is left out as a whole.
    """
    found, left = [], []  # type: List[Tuple[float, str, int]], _Left

    def look(folder: str, inside: str) -> None:
        try:
            entries = list(os.scandir(folder))
        except OSError as error:
            left.append((inside, 0, _why(error)))
            return
        for entry in entries:
            name, stat = str(Path(inside, entry.name)), entry.stat(follow_symlinks=False)
            is_folder, at = entry.is_dir(follow_symlinks=False), max(stat.st_mtime, stat.st_ctime)
            if entry.name == "__pycache__" or (not inside and (_LOGS.fullmatch(name) or name.startswith(_OWN))):
                continue
            if is_folder and not entry.name.startswith("."):
                if os.path.realpath(entry.path) != os.path.realpath(checkpoints):
                    look(entry.path, name)
            elif at < since:
                continue
            elif entry.name.startswith("."):
                left.append((name, _size(Path(entry.path)) if is_folder else stat.st_size, "it is hidden"))
            elif entry.is_file(follow_symlinks=False):
                found.append((at, name, stat.st_size))
            else:
                left.append((name, stat.st_size, "it is a link" if entry.is_symlink() else "it is not a regular file"))

    look(sandbox, "")
    return [(name, size) for _, name, size in sorted(found, reverse=True)], left


def _why(error: OSError) -> str:
    return error.strerror or str(error)


def keep(settings: Dict[str, Any], sandbox: str) -> None:
    """Copy new files, and record what was kept and left. Raises OSError.

    `settings`: task, launch, folder (CHECKPOINT_DIR), place (the same, or the URL in which it is stored), limit (bytes
    of all launches), since (Unix time), is_leader. If there is too little room, files of launches that ended before
    this one began are removed, the oldest first; for the leader also those of other tasks.
    """
    task, launch, limit, since = settings["task"], settings["launch"], settings["limit"], settings["since"]
    root, kept = Path(settings["folder"], FOLDER), []  # type: Path, _Kept
    own = root / launch
    files, left = new_files(sandbox, settings["folder"], since)
    if not files and not left:
        return
    if root.is_symlink():
        raise OSError(f"{root} is a link")
    root.mkdir(exist_ok=True)
    wanted = sum(size for _, size in files if size <= limit)
    for path in sorted(root.glob("*.json"), key=lambda path: path.lstat().st_mtime):
        if wanted + _copies(root) <= limit:
            break
        if settings["is_leader"] or path.lstat().st_mtime < since:
            _remove(path, f"removed for files of {task}")
    room = limit - _copies(root)
    for name, size in files:
        if size > room or len(kept) >= _MAX_FILES:
            left.append((name, size, "service.keep_files is {}".format("smaller" if size > limit else "full")))
            continue
        try:
            (own / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(str(Path(sandbox, name)), str(own / name), follow_symlinks=False)
        except OSError as error:
            left.append((name, size, _why(error)))
            with suppress(OSError):
                (own / name).unlink()  # a part
            continue
        kept.append((name, size))
        room -= size
    place = "{}/{}/{}".format(settings["place"], FOLDER, launch)
    record = {"launch": launch, "task": task, "folder": place, "kept": kept, "left": left}
    (root / f"{launch}.json").write_text(json.dumps(record))


def _remove(path: Path, why: str) -> None:
    """Remove the files of another launch, and say so in its record."""
    with suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
        record = json.loads(path.read_text())
        if record["launch"] == path.stem and record["kept"]:
            record["left"] = [[*item, why] for item in record["kept"]] + record["left"]
            shutil.rmtree(str(path.with_suffix("")), ignore_errors=True)
            path.write_text(json.dumps({**record, "kept": []}))


def _copies(root: Path) -> int:
    """Return the bytes of the copies of all launches."""
    return sum(_size(path) for path in root.iterdir() if path.is_dir() and not path.is_symlink())


def _size(folder: Path) -> int:
    return sum(Path(at, name).lstat().st_size for at, _, names in os.walk(str(folder)) for name in names)


def main(text: str) -> int:
    """Keep files of the working directory; return 0, as a job does not fail for this."""
    settings = json.loads(text)
    if "://" in settings["folder"]:
        return 0
    try:
        keep(settings, ".")
    except (OSError, ValueError, LookupError, TypeError) as error:
        sys.stderr.write(f"files are not kept: {error}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
