"""Keep files of a working directory in CHECKPOINT_DIR/files. Python 3.6.

files/worker-0/model.keras   a copy; only of the task's last launch
files/worker-0.json          {"kept": [[name, bytes], ...], "left": [...]}; the newest files first
"""

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Dict, Iterator, List, Tuple

#: Below CHECKPOINT_DIR.
FOLDER = "files"
#: Logs of a task, with those that were rotated.
_LOGS = re.compile(r"(stdout|stderr|executor\.log)(\..*)?")
#: Maximum number of files that are kept, and that are named otherwise.
_MAX_FILES, _MAX_NAMED = 10000, 20

_Files = List[Tuple[str, int]]


def new_files(sandbox: str, checkpoints: str, since: float) -> _Files:
    """Return names and sizes of regular files written since then, the newest first.

    Checkpoints, the task's logs, caches of Python and hidden files are left out.
    """
    found = sorted(_walk(sandbox, os.path.realpath(checkpoints), since), reverse=True)
    names = ((os.path.relpath(path, sandbox), size) for _, path, size in found)
    return [(name, size) for name, size in names if not _LOGS.fullmatch(name)]


def _walk(folder: str, checkpoints: str, since: float) -> Iterator[Tuple[float, str, int]]:
    for entry in os.scandir(folder):
        if entry.name.startswith(".") or entry.name == "__pycache__" or entry.is_symlink():
            continue
        if entry.is_dir(follow_symlinks=False):
            if os.path.realpath(entry.path) != checkpoints:
                yield from _walk(entry.path, checkpoints, since)
        elif entry.is_file(follow_symlinks=False):
            stat = entry.stat(follow_symlinks=False)
            if stat.st_mtime >= since:
                yield stat.st_mtime, entry.path, stat.st_size


def keep(settings: Dict[str, object], sandbox: str) -> Dict[str, _Files]:
    """Copy new files; return what was kept and left. Raises OSError.

    `settings`: task, folder (CHECKPOINT_DIR), limit (bytes of all tasks), since (Unix time), is_leader. The leader
    comes first: it removes files of other tasks if they leave too little room.
    """
    task, root, limit = str(settings["task"]), Path(str(settings["folder"]), FOLDER), int(str(settings["limit"]))
    own = root / task
    shutil.rmtree(str(own), ignore_errors=True)
    files = new_files(sandbox, str(settings["folder"]), float(str(settings["since"])))
    if settings["is_leader"] and sum(size for _, size in files) + _size(root) > limit:
        for other in root.glob("*/"):
            shutil.rmtree(str(other), ignore_errors=True)
    room, kept, left = limit - _size(root), [], []  # type: int, _Files, _Files
    for name, size in files:
        if size > room or len(kept) >= _MAX_FILES:
            left.append((name, size))
            continue
        (own / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(str(Path(sandbox, name)), str(own / name), follow_symlinks=False)
        kept.append((name, size))
        room -= size
    return {"kept": kept, "left": left}


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*/**/*") if path.is_file())


def main(text: str) -> int:
    """Keep files of the working directory; return 0, as a job does not fail for this."""
    settings = json.loads(text)
    if "://" in settings["folder"]:
        return 0
    try:
        result = keep(settings, ".")
        if result["kept"] or result["left"]:
            record = Path(settings["folder"], FOLDER, f"{settings['task']}.json")
            record.parent.mkdir(exist_ok=True)
            record.write_text(json.dumps(result))
        for name, size in result["left"][:_MAX_NAMED]:
            sys.stderr.write(f"not kept: {name} ({size} bytes); the limit is service.keep_files\n")
    except OSError as error:
        sys.stderr.write(f"files are not kept: {error}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
