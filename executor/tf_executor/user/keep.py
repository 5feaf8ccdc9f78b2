"""Keep files of a working directory in CHECKPOINT_DIR/files. Python 3.6.

files/worker-0/model.keras   a copy; only of the task's last launch
files/worker-0.json          {"kept": [[name, bytes], ...], "left": [[name, bytes, why], ...]}; the newest files first
"""

import json
import os
import re
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Dict, List, Tuple

#: Below CHECKPOINT_DIR.
FOLDER = "files"
#: Logs of a task, with those that were rotated.
_LOGS = re.compile(r"(stdout|stderr|executor\.log)(\.\d+(\.gz)?|\.times|\.logrotate\.\w+)?")
#: Hidden files and folders of the executor, and what an import of Keras writes.
_OWN = (".tf_executor", ".exec", ".storage", ".keras")
#: Maximum number of files that are kept, and that are named otherwise.
_MAX_FILES, _MAX_NAMED = 10000, 20

_Kept = List[Tuple[str, int]]
_Left = List[Tuple[str, int, str]]


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


def keep(settings: Dict[str, object], sandbox: str) -> None:
    """Copy new files, and record what was kept and left. Raises OSError.

    `settings`: task, folder (CHECKPOINT_DIR), limit (bytes of all tasks), since (Unix time), is_leader. The leader
    comes first: it removes files of other tasks if they leave too little room.
    """
    task, root, limit = str(settings["task"]), Path(str(settings["folder"]), FOLDER), int(str(settings["limit"]))
    own, kept = root / task, []  # type: Path, _Kept
    shutil.rmtree(str(own), ignore_errors=True)
    files, left = new_files(sandbox, str(settings["folder"]), float(str(settings["since"])))
    if settings["is_leader"] and sum(size for _, size in files if size <= limit) + _size(root) > limit:
        for record in root.glob("*.json"):
            _remove(record, f"removed for files of {task}")
    room = limit - _size(root)
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
    if kept or left:
        root.mkdir(exist_ok=True)
        (root / f"{task}.json").write_text(json.dumps({"kept": kept, "left": left}))
    for name, size, why in left[:_MAX_NAMED]:
        sys.stderr.write(f"not kept: {name} ({size} bytes): {why}\n")


def _remove(record: Path, why: str) -> None:
    """Remove the files of another task, and say so in its record."""
    shutil.rmtree(str(record.with_suffix("")), ignore_errors=True)
    lists = json.loads(record.read_text())
    left = [[*item, why] for item in lists["kept"]] + lists["left"]
    record.write_text(json.dumps({"kept": [], "left": left}))


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
