"""Find complete checkpoints in a program's folder, copy them, and describe them.

Python 3.6, standard library only. Files form groups. A group is complete or incomplete as a whole:

- TensorFlow: the files of the prefix that the file `checkpoint` names. TensorFlow writes that file last.
- SavedModel: the folder with `saved_model.pb`, which TensorFlow writes after the variables.
- The other files of a folder, for example .keras, .h5 and .pt: complete when all of them are closed and unchanged for
  QUIET seconds, or when the program exits and has closed them.

Files of older TensorFlow checkpoints belong to no group. The storage keeps the last complete version of a group while
the group is incomplete.
"""

import ast
import hashlib
import json
import os
import re
import shutil
import time
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from .keep import FOLDER as KEPT

#: Seconds without a change after which a closed file is complete: Keras writes two files for one backup.
QUIET = 2.0
#: What TensorFlow and others write before they rename it.
_DRAFT = re.compile(r".*(\.tmp[^/]*|\.part|\.tempstate\d+|_temp|_temp_[0-9a-f]{32}|tmp-\d+)")
#: Files that grow all the time, which readers read from any state; and kept ones.
_PLAIN = re.compile(rf"(.*/)?(events\.out\.tfevents[^/]*|plugins/.+|[^/]+\.(log|csv|jsonl|pid))|{KEPT}/.+")
_STATE, _SAVED_MODEL = "checkpoint", "saved_model.pb"
_PREFIX_FILE = re.compile(r"(.+)\.(index|meta|data-\d{5}-of-(\d{5}))")
_STATE_PATH = re.compile(rb'^model_checkpoint_path:\s*("(?:[^"\\\n]|\\.)*")', re.MULTILINE)
#: Folder of a launch below `.carried`.
LAUNCH = re.compile(r"([0-9]{15})\.([!-.0-~]{1,240})")
_ZIP = b"PK\x03\x04"

#: Size, time of change in ns, and inode.
Fingerprint = Tuple[int, int, int]


class IncompleteError(Exception):
    """The checkpoint is incomplete, or the program is changing it."""


class Manifest(NamedTuple):
    """The description of one complete checkpoint."""

    #: Folder of the launch that has written the manifest.
    launch: str
    sequence: int
    #: Name for people, such as `ckpt-300`.
    label: str
    #: {"path", "size", "sha256", "launch"} of each file; the content is in the folder of this launch.
    files: List[Dict[str, Any]]

    @classmethod
    def decode(cls, name: str, data: bytes) -> "Manifest":
        """Decode a manifest. Raises IncompleteError, also for paths outside the folder."""
        launch = name.partition("/")[0]
        try:
            values = json.loads(data.decode())
            files: List[Dict[str, Any]] = [
                {
                    "path": str(item["path"]),
                    "size": int(item["size"]),
                    "sha256": str(item["sha256"]),
                    "launch": str(item.get("launch", launch)),
                }
                for item in values["files"]
            ]
            label = str(values["label"])
            folders = {folder for item in files for folder in Path(item["path"]).parents}
            for item in files:
                path = Path(item["path"])
                is_inside = bool(path.parts) and ".." not in path.parts and not path.is_absolute()
                is_object = re.fullmatch("[0-9a-f]{64}", item["sha256"]) and LAUNCH.fullmatch(item["launch"])
                if not is_inside or not is_object or path in folders or b"\0" in os.fsencode(item["path"]):
                    raise ValueError("invalid entry")
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            raise IncompleteError(f"{name}: invalid manifest") from None
        return cls(launch, cls.sequence_of(name), label, files)

    @staticmethod
    def sequence_of(name: str) -> int:
        return int(name.rpartition("/")[2][: -len(".json")])

    @property
    def digests(self) -> Dict[str, str]:
        """Digest by path."""
        return {item["path"]: item["sha256"] for item in self.files}

    @property
    def objects(self) -> Set[str]:
        """Names of the objects with the contents."""
        return {f"{item['launch']}/{item['sha256']}" for item in self.files}

    @property
    def name(self) -> str:
        return f"{self.launch}/{self.sequence:09d}.json"

    def encode(self) -> bytes:
        return json.dumps({"version": 1, "label": self.label, "files": self.files}).encode()


def digest_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for chunk in iter(lambda: file.read(1 << 20), b""):
            digest.update(chunk)
    return digest.hexdigest()


class FileGroup(NamedTuple):
    """Files of one checkpoint, which are complete only together."""

    #: Folder and names, relative to the program's folder.
    folder: str
    names: List[str]
    #: TensorFlow's prefix; empty for other files.
    prefix: str = ""
    #: Whether the files themselves say that they are complete; None: they do not tell.
    is_whole: Optional[bool] = None

    def has_stored(self, name: str) -> bool:
        """Return whether a stored file belongs to the last complete version of this group."""
        folder, is_tensorflow = Path(name).parent, Path(name).name == _STATE or bool(_PREFIX_FILE.fullmatch(name))
        if self.prefix:
            # Also of an earlier prefix: only one is stored.
            return is_tensorflow and folder in (Path(self.folder), Path(self.prefix).parent)
        if any(Path(own).name == _SAVED_MODEL for own in self.names):
            return Path(self.folder) in Path(name).parents
        # Without a file `checkpoint`, the group has files with these names, too.
        return folder == Path(self.folder) and (name in self.names or not is_tensorflow)


def is_plain(name: str) -> bool:
    """Return whether a file belongs to no checkpoint: event files and logs."""
    return bool(_PLAIN.fullmatch(name))


def find_groups(root: Path) -> Iterator[FileGroup]:
    """Yield all groups below a folder."""
    for folder, below, files in os.walk(str(root)):
        below[:] = sorted(name for name in below if _is_visible(name))
        here = str(Path(folder).relative_to(root))
        names = [
            str(Path(here) / name)
            for name in sorted(files)
            if _is_visible(name) and not os.path.islink(os.path.join(folder, name))  # noqa: PTH114, PTH118
        ]
        if _SAVED_MODEL in files:
            below[:] = []
            yield _saved_model(root, here)
            continue
        names = [name for name in names if not is_plain(name)]
        if _STATE in files:
            group = _tensorflow_group(root, Path(folder), names)
            if group is not None:
                yield group
            names = [name for name in names if not _PREFIX_FILE.fullmatch(name) and Path(name).name != _STATE]
        if names:
            yield FileGroup(here, names)


def _is_visible(name: str) -> bool:
    return not name.startswith(".") and name != KEPT and not _DRAFT.fullmatch(name)


def _saved_model(root: Path, here: str) -> FileGroup:
    paths = [path for path in sorted((root / here).rglob("*")) if path.is_file() and not path.is_symlink()]
    written = {path.name: path.stat().st_mtime_ns for path in paths if path.parent.name == "variables"}
    is_new = (root / here / _SAVED_MODEL).stat().st_mtime_ns >= max(written.values(), default=0)
    # A model that is saved again has the old saved_model.pb while it gets new variables.
    return FileGroup(here, [str(path.relative_to(root)) for path in paths], is_whole=None if is_new else False)


def _tensorflow_group(root: Path, folder: Path, names: List[str]) -> Optional[FileGroup]:
    """Return the group of the newest checkpoint; None if it is outside of `root`."""
    match = _STATE_PATH.search((folder / _STATE).read_bytes())
    if match is None:
        return None
    written = ast.literal_eval("b" + match.group(1).decode("ascii", "replace")).decode()
    path = Path(os.path.normpath(str(folder / written)))
    state = str((folder / _STATE).relative_to(root))
    try:
        prefix = str(path.relative_to(root))
    except ValueError:
        return None
    if path.parent != folder:
        names = [str(item.relative_to(root)) for item in sorted(path.parent.glob("*"))]
    own = {name: match for name in names for match in [_PREFIX_FILE.fullmatch(name)] if match and match[1] == prefix}
    shards = [match[3] for match in own.values() if match[3]]
    times = {name: (root / name).stat().st_mtime_ns for name in own}
    index = times.get(f"{prefix}.index", 0)
    # The index is written after the data, also if a program uses one prefix again.
    newest = max((times[name] for name, match in own.items() if match[3]), default=0)
    is_whole = bool(shards) and len(shards) == int(shards[0]) and index >= newest
    return FileGroup(str(folder.relative_to(root)), [state, *own], prefix, is_whole)


def state_of(prefix: str, state: str) -> bytes:
    """Return a file `checkpoint` that names only this prefix, by a relative path."""
    path = os.path.relpath(prefix, str(Path(state).parent))
    safe = (chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}" for byte in path.encode())
    escaped = "".join(safe)
    return f'model_checkpoint_path: "{escaped}"\nall_model_checkpoint_paths: "{escaped}"\n'.encode()


class FolderSnapshot:
    """Consistent copies of the complete groups of a folder, by hard links."""

    def __init__(self, root: Path, work: Path) -> None:
        self._root, self._work = root, work
        #: Of the files that are stored, and that were copied.
        self._stored: Dict[str, Fingerprint] = {}
        self._taken: Dict[str, Fingerprint] = {}
        #: Changed files and their copies.
        self.copies: Dict[str, Path] = {}
        self._unchanged: Set[str] = set()
        #: Files that were open for writing at the last look at a running program; None: not looked.
        self._writing: Optional[Set[Tuple[int, int]]] = None
        #: Incomplete groups.
        self._held: List[FileGroup] = []
        #: Names of files that are being written.
        self.waiting_for: List[str] = []
        #: Name for people, such as `ckpt-300`.
        self.label = ""

    def take(self, ended: Optional[float], is_orderly: bool) -> bool:
        """Copy new complete groups; return whether there are any.

        `ended`: when the program exited; None: it runs. `is_orderly`: whether its exit code shows that it closed its
        files. Raises IncompleteError if the program changes a file meanwhile.
        """
        self.release()
        try:
            self._take(ended, is_orderly)
        except FileNotFoundError as error:
            raise IncompleteError(f"{error.filename} is removed") from None
        return bool(self.copies)

    def is_kept(self, name: str) -> bool:
        """Return whether the stored version of a file still belongs to the checkpoint."""
        is_held = any(group.has_stored(name) for group in self._held)
        return name not in self.copies and (name in self._unchanged or is_held)

    def _take(self, ended: Optional[float], is_orderly: bool) -> None:
        groups = list(find_groups(self._root))
        prints = {name: _fingerprint(self._root / name) for group in groups for name in group.names}
        new = [group for group in groups if any(self._stored.get(name) != prints[name] for name in group.names)]
        if ended is None:
            self._writing = _open_for_writing() if any(group.is_whole is None for group in new) else set()
        complete = [group for group in new if self._is_complete(group, prints, ended, is_orderly)]
        self.waiting_for = [
            max(group.names, key=lambda name: prints[name][1]) for group in new if group not in complete
        ]
        for group in complete:
            self._copy(group, prints)
        self._taken = {name: prints[name] for name in self.copies}
        self._unchanged = {name for group in groups if group not in new for name in group.names}
        self._held = [group for group in new if group not in complete]
        prefixes = [group.prefix for group in groups if group.prefix]
        self.label = Path(max(prefixes or self.copies or [""], key=_number_in)).name

    def verify(self) -> None:
        """Raise IncompleteError if a copy has changed, because a program wrote into it."""
        for name, copy in self.copies.items():
            if Path(name).name != _STATE and _fingerprint(copy) != self._taken[name]:
                raise IncompleteError(f"{name} has changed")

    @property
    def written(self) -> Optional[float]:
        """When the program wrote the copies (time.monotonic); None: only .txt files."""
        times = [taken[1] / 1e9 for name, taken in self._taken.items() if not name.endswith(".txt")]
        return time.monotonic() - max(0.0, time.time() - max(times)) if times else None

    def keep(self) -> None:
        """Note that the copies are stored."""
        self._stored.update(self._taken)

    def release(self) -> None:
        self.copies, self._taken = {}, {}
        shutil.rmtree(str(self._work), ignore_errors=True)

    def models(self) -> Iterator[str]:
        """Yield the names of all files in groups except TensorFlow's checkpoints."""
        for group in find_groups(self._root):
            if not group.prefix:
                yield from group.names

    def _is_complete(
        self,
        group: FileGroup,
        prints: Dict[str, Fingerprint],
        ended: Optional[float],
        is_orderly: bool,
    ) -> bool:
        if group.is_whole is not None or is_orderly:
            return group.is_whole is not False
        paths = [self._root / name for name in group.names]
        now = time.time() if ended is None else ended
        busy = [
            path
            for path, name in zip(paths, group.names)
            if 0 <= now - prints[name][1] / 1e9 < QUIET or self._writing is None or _identity(path) in self._writing
        ]
        if ended is not None:
            # The program was killed, perhaps while it wrote: a whole zip archive ends with its directory.
            return all(_has_end(path) in ((True,) if path in busy else (True, None)) for path in paths)
        return not busy

    def _copy(self, group: FileGroup, prints: Dict[str, Fingerprint]) -> None:
        self._work.mkdir(parents=True, exist_ok=True)
        for name in group.names:
            copy = self._work / str(len(self.copies))
            if group.prefix and Path(name).name == _STATE:
                # The program's file may name older checkpoints, and folders of this agent.
                copy.write_bytes(state_of(group.prefix, name))
            else:
                _link(self._root / name, copy)
            self.copies[name] = copy
        for name in group.names:
            # Nothing was replaced while the links were made.
            if _fingerprint(self._root / name) != prints[name]:
                raise IncompleteError(f"{name} has changed")


def _link(path: Path, copy: Path) -> None:
    try:
        os.link(str(path), str(copy))
    except FileNotFoundError:
        raise
    except OSError:  # the file system has no hard links
        shutil.copy2(str(path), str(copy))


def _fingerprint(path: Path) -> Fingerprint:
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ino


def _identity(path: Path) -> Tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _open_for_writing() -> Set[Tuple[int, int]]:
    """Return device and inode of the files that processes of this user write to."""
    result: Set[Tuple[int, int]] = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            for entry in (process / "fdinfo").iterdir():
                with suppress(OSError):
                    flags = re.search(r"flags:\s*([0-7]+)", entry.read_text())
                    if flags and int(flags.group(1), 8) & os.O_ACCMODE:
                        result.add(_identity(process / "fd" / entry.name))
    return result


def _has_end(path: Path) -> Optional[bool]:
    """Return whether a zip archive (.keras, .pt) is whole; None for other files."""
    with path.open("rb") as file:
        if file.read(len(_ZIP)) != _ZIP:
            return None
    return zipfile.is_zipfile(str(path))


def _number_in(name: str) -> Tuple[int, str]:
    numbers = re.findall(r"\d+", Path(name).name)
    return int(numbers[-1]) if numbers else -1, name
