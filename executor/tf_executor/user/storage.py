"""Carry checkpoints to and from object storage, with fsspec. Python 3.6.

`python -m tf_executor.storage bring` restores the newest checkpoint before the program starts; `carry` uploads new
checkpoints while the program runs. Below the service's URL:

    .carried/NUMBER.LAUNCH/launch         written first; the launch with the highest number is the newest
    .carried/NUMBER.LAUNCH/restored       manifest of the checkpoint that the launch and its peers start with
    .carried/NUMBER.LAUNCH/SHA256         content of a file; manifests of later launches may refer to it
    .carried/NUMBER.LAUNCH/SEQUENCE.json  manifest of a checkpoint: names, sizes and digests; written last
    PATH                                  event files and logs, and the files of a program that has succeeded

A checkpoint exists only once it has a manifest. No object below `.carried` is ever changed. So a writer that was cut
off cannot damage the checkpoint of a newer writer.
"""

import errno
import json
import os
import random
import re
import select
import shutil
import signal
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from . import reporting
from .checkpoints import LAUNCH, FolderSnapshot, IncompleteError, Manifest, digest_of, is_plain
from .fetch import NO_PACKAGE, NoPackageError, describe, file_system, is_refused, is_unavailable, redacted

#: Variable with the settings: every user of the machine may read arguments.
SETTINGS_VARIABLE = "TF_EXECUTOR_STORAGE"
#: The program's folder, and the folder for copies in work, whose existence shows that checkpoints are carried.
LOCAL, WORK = Path("checkpoints"), Path(".storage")
#: Prefix of all objects that only this module reads.
_CARRIED = ".carried"
#: Exit code if a newer launch writes to the same URL.
SUPERSEDED = 3
#: Tasks: `writer` stores checkpoints, `peer` starts with the same one as the writer, `evaluator` gets all of them,
#: `tensorboard` gets event files, `scratch` gets nothing.
WRITER, PEER, EVALUATOR, TENSORBOARD, SCRATCH = "writer", "peer", "evaluator", "tensorboard", "scratch"
#: Exit codes of a program that has closed its files: success, and the request for a restart.
_ORDERLY = (["0"], ["42"])
#: Seconds between two looks at files that change, at the program's end or the writer's start, and at a storage that
#: fails at the end.
_SOON, _TICK, _RETRY = 2.0, 0.2, 1.0
#: Maximum seconds between two calls of a storage that does not answer before the program, and seconds of a call after
#: which it is reported.
_LONGEST, _SLOW = 15.0, 5.0
#: Seconds after which files that keep changing are reported.
_LONG = 60.0
_MANIFEST = re.compile(rf"{LAUNCH.pattern}/([0-9]{{9}})\.json")
#: Errors of files that the folder cannot hold.
_IMPOSSIBLE = (errno.ENAMETOOLONG, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY, errno.ELOOP)
#: File systems that need folders; in the others, making one could create a bucket.
_WITH_FOLDERS = ("file", "local", "sftp", "ssh", "smb", "webhdfs")
#: Options by scheme. s3fs holds 50 MB twice for each of its 10 connections; the memory is the task's.
_S3 = {"max_concurrency": 1}
_DEFAULTS: Dict[str, Dict[str, Any]] = {
    "file": {"auto_mkdir": True},
    "local": {"auto_mkdir": True},
    "s3": _S3,
    "s3a": _S3,
}


class StorageError(Exception):
    """The storage cannot be used; the message says why."""


class SupersededError(Exception):
    """A newer launch writes to the same URL."""


class Store:
    """Objects below one URL. Each method raises the errors of the file system."""

    def __init__(self, url: str, options: Dict[str, Any]) -> None:
        scheme = url.partition("://")[0]
        self.files, root = file_system(url, {**_DEFAULTS.get(scheme, {}), **options})
        self._root, self._has_folders = root.rstrip("/"), scheme in _WITH_FOLDERS

    def path(self, name: str, carried: bool = True) -> str:
        return f"{self._root}/{_CARRIED}/{name}" if carried else f"{self._root}/{name}"

    def names(self, carried: bool = True) -> List[str]:
        """Return the names of all objects, sorted."""
        self.files.invalidate_cache()
        folder = self.path("", carried)
        with suppress(FileNotFoundError):
            paths = self.files.find(folder.rstrip("/"))
            begin = self.files._strip_protocol(folder.rstrip("/"))
            return sorted(path[len(begin) :].lstrip("/") for path in paths)
        return []

    def manifests(self) -> List[str]:
        """Return the names of all manifests, the oldest first."""
        return [name for name in self.names() if _MANIFEST.fullmatch(name)]

    def launches(self) -> List[str]:
        """Return the folders of all launches, the oldest first."""
        folders = {name.partition("/")[0] for name in self.names()}
        return sorted(folder for folder in folders if LAUNCH.fullmatch(folder))

    def read(self, name: str, start: int = 0, carried: bool = True) -> bytes:
        return bytes(self.files.cat_file(self.path(name, carried), start=start or None))

    def write(self, name: str, data: bytes) -> None:
        self._make_folder(self.path(name))
        self.files.pipe_file(self.path(name), data)

    def upload(self, source: Path, name: str, carried: bool = True) -> None:
        self._make_folder(self.path(name, carried))
        self.files.put_file(str(source), self.path(name, carried))

    def download(self, name: str, target: Path) -> None:
        self.files.get_file(self.path(name), str(target))

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self.files.rm_file(self.path(name))

    def _make_folder(self, path: str) -> None:
        if self._has_folders:
            self.files.makedirs(path.rpartition("/")[0], exist_ok=True)


# Before the program.


class _PatientFiles:
    """A file system that repeats and reports calls without an answer."""

    def __init__(self, url: str) -> None:
        self.files, self._url, self._problem = None, redacted(url), ""  # type: Any, str, str

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.files, name)
        return partial(self.call, value) if callable(value) else value

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        pause = _RETRY
        while True:
            slow = threading.Timer(_SLOW, self._report, [self._problem or "no answer"])
            # A large file takes longer, and so may the imports of a file system.
            if function is not Store and getattr(function, "__name__", "") != "get_file":
                slow.start()
            problem = ""
            try:
                return function(*args, **kwargs)
            except Exception as error:  # file systems raise any exception
                if not is_unavailable(error):
                    raise
                problem = describe(error)
            finally:
                slow.cancel()
                if slow.is_alive():
                    slow.join()
                self._report(problem)
            time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - no secret; not all tasks at the same time
            pause = min(2 * pause, _LONGEST)

    def _report(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            say(f"{self._url}: {problem}; retrying" if problem else "the storage works again", error=True)
            reporting.send({reporting.STORAGE_KEY: problem and f"{self._url}: {problem}"})


def bring(settings: Dict[str, Any]) -> None:
    """Prepare the program's checkpoint folder. Raises errors of the file system, too."""
    if settings["mode"] == "auto" and _has_scheme(settings["url"].partition("://")[0]):
        say(f"direct: this TensorFlow writes to {settings['url']} itself")
        return
    shutil.rmtree(str(WORK), ignore_errors=True)
    WORK.mkdir()
    launch, restored, role = "", None, settings["role"]
    if role != SCRATCH:
        files = _PatientFiles(settings["url"])
        store = files.call(Store, settings["url"], settings["options"])
        files.files, store.files = store.files, files
        if role == WRITER:
            launch = claim(store, settings)
        if role == TENSORBOARD:
            bring_events(store, LOCAL)
        elif role == PEER:
            restored = restore_of_writer(store, LOCAL, settings)
        else:
            restored = restore(store, LOCAL)
    name, manifest = ("", "") if restored is None else (restored.name, restored.encode().decode())
    if restored is not None:
        say(f"restored {restored.label}")
    if launch:
        store.write(f"{launch}/restored", json.dumps(name).encode())
    LOCAL.mkdir(exist_ok=True)
    (WORK / "launch").write_text(json.dumps({"launch": launch, "restored": name, "manifest": manifest}))


def _has_scheme(scheme: str) -> bool:
    """Return whether the task's TensorFlow can write to the scheme by itself."""
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", TF_ENABLE_ONEDNN_OPTS="0")  # only this process: import in silence
    try:
        import tensorflow
    except ImportError:
        return False
    registered_schemes = getattr(tensorflow.io.gfile, "get_registered_schemes", None)
    # TensorFlow 2.5 and older have no such function, but these file systems.
    return scheme in (registered_schemes() if registered_schemes else ("file", "gs", "s3", "hdfs"))


def claim(store: Store, settings: Dict[str, Any]) -> str:
    """Make this launch the newest; return the name of its folder.

    The folder's number is the larger of two numbers. The time of the launch is right even if the storage lists new
    objects late. The highest number plus one is right even if the clock was set back. The write also proves that
    checkpoints can be stored.
    """
    highest = max((int(name.partition(".")[0]) for name in store.launches()), default=0)
    number = max(int(settings["launched_at"] * 1000), highest + 1)
    launch = f"{number:015d}.{settings['task_id']}"
    try:
        store.write(f"{launch}/launch", json.dumps({"service": settings.get("service", "")}).encode())
    except FileNotFoundError:
        raise StorageError("the bucket or folder does not exist") from None
    return launch


def restore_of_writer(store: Store, folder: Path, settings: Dict[str, Any]) -> Optional[Manifest]:
    """Put the writer's checkpoint into the folder; wait until the writer has started.

    Collective training is wrong if its tasks start with different checkpoints. So `settings` name the launch of the
    writer: an earlier one may store newer checkpoints until this writer has started, and clocks may be wrong.
    """
    name = None
    say("waiting for the task that stores checkpoints")
    while name is None:
        launch = next((each for each in store.launches() if each.partition(".")[2] == settings["writer"]), None)
        with suppress(FileNotFoundError):
            name = json.loads(store.read(f"{launch}/restored").decode()) if launch else None
        time.sleep(_TICK if name is None else 0)
    manifest = Manifest.decode(name, store.read(name)) if name else None
    if manifest is not None:
        _download(store, manifest, folder, {})
    return manifest


def restore(store: Store, folder: Path, present: Optional[Dict[str, str]] = None) -> Optional[Manifest]:
    """Put the newest complete checkpoint into the folder; return its manifest.

    `present`: digests of files that the folder has already. Return None without a complete checkpoint.
    """
    before: List[str] = []
    while True:
        names = store.manifests()
        if names == before:
            return None
        # A writer may have removed a checkpoint since the listing: then it has stored a newer one.
        before = names
        for name in reversed(names):
            try:
                manifest = Manifest.decode(name, store.read(name))
                _download(store, manifest, folder, present or {})
                return manifest
            except (IncompleteError, OSError) as error:
                is_damaged = isinstance(error, (IncompleteError, FileNotFoundError)) or error.errno in _IMPOSSIBLE
                if not is_damaged:  # such as a full disk
                    raise
                say(f"checkpoint {name} is skipped: {describe(error)}", error=True)


def _download(store: Store, manifest: Manifest, folder: Path, present: Dict[str, str]) -> None:
    """Download and verify all files, then move them into the folder."""
    new = WORK / "new"
    shutil.rmtree(str(new), ignore_errors=True)
    wanted = [item for item in manifest.files if present.get(item["path"]) != item["sha256"]]
    try:
        for number, item in enumerate(wanted):
            new.mkdir(parents=True, exist_ok=True)
            target = new / str(number)
            store.download(f"{item['launch']}/{item['sha256']}", target)
            if target.stat().st_size != item["size"] or digest_of(target) != item["sha256"]:
                raise IncompleteError(f"{item['path']}: wrong size or digest")
        # Programs look for these names, so they come last.
        last = ("checkpoint", "saved_model.pb")
        order = sorted(enumerate(wanted), key=lambda pair: Path(pair[1]["path"]).name in last)
        now = time.time()
        for number, item in order:
            path = folder / item["path"]
            # A saved_model.pb or index that is older than its data would look incomplete.
            os.utime(str(new / str(number)), (now, now))
            path.parent.mkdir(parents=True, exist_ok=True)
            (new / str(number)).replace(path)
    finally:
        shutil.rmtree(str(new), ignore_errors=True)


def bring_events(store: Store, folder: Path) -> None:
    """Append the storage's newer bytes to event files, which readers keep open."""
    for name in store.names(carried=False):
        path = folder / name
        if name.startswith(f"{_CARRIED}/") or ".." in Path(name).parts or not is_plain(name):
            continue
        have = path.stat().st_size if path.exists() else 0
        if store.files.size(store.path(name, carried=False)) > have:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as file:
                file.write(store.read(name, have, carried=False))


# Beside the program.


class Carrier:
    """Uploads or downloads the files of one launch, depending on its role."""

    def __init__(self, store: Store, settings: Dict[str, Any]) -> None:
        self._store, self._settings = store, settings
        work = json.loads((WORK / "launch").read_text())
        self._launch = str(work["launch"])
        #: The last checkpoint of this launch or, before the first one, that with which the program has started.
        self._stored: Optional[Manifest] = None
        if work["restored"]:
            self._stored = Manifest.decode(work["restored"], work["manifest"].encode())
        #: Number of the last manifest of this launch; negative: not known yet.
        self._sequence = -1
        #: Digests of the files that an evaluator has, and names of those that it had before.
        self._brought: Dict[str, str] = {} if self._stored is None else self._stored.digests
        self._former: Set[str] = set()
        self._snapshot = FolderSnapshot(LOCAL, WORK / "copies")
        self._uploaded: Set[str] = set()
        self._waiting_since = 0.0
        self._reported: Set[str] = set()
        self._plain: Dict[str, Tuple[int, int]] = {}

    def round(self, program: "RunningProgram") -> bool:
        """Upload or download new files; return whether the program writes a checkpoint.

        Raises SupersededError, and errors of the file system.
        """
        role, is_waiting = self._settings["role"], False
        if role == TENSORBOARD:
            bring_events(self._store, LOCAL)
            return False
        if role == WRITER:
            is_waiting = self._save(program)
        elif role == EVALUATOR:
            self._bring()
        self._save_plain(program.has_succeeded and role == WRITER)
        return is_waiting

    def _bring(self) -> None:
        restored = restore(self._store, LOCAL, self._brought)
        if restored is not None and restored.digests != self._brought:
            # The evaluator may still read the files of the checkpoint before.
            for name in self._former.difference(self._brought, restored.digests):
                with suppress(OSError):
                    (LOCAL / name).unlink()
            self._former, self._brought = set(self._brought), restored.digests

    @property
    def last(self) -> str:
        """The last checkpoint in the storage."""
        return "no checkpoint" if self._stored is None else self._stored.label

    def _save(self, program: "RunningProgram") -> bool:
        self._check_newest()
        try:
            if self._snapshot.take(program.ended, program.is_orderly):
                self._upload()
            self._tell_waiting()
            return bool(self._snapshot.waiting_for)
        except IncompleteError:
            return True  # the program has changed a file meanwhile
        finally:
            self._snapshot.release()

    def _tell_waiting(self) -> None:
        """Print once which file has been incomplete or changing for a long time."""
        names = self._snapshot.waiting_for
        self._waiting_since = self._waiting_since or time.time() if names else 0.0
        if names and time.time() > self._waiting_since + _LONG and names[0] not in self._reported:
            self._reported.add(names[0])
            say(f"{names[0]}: not stored yet, because it is incomplete or keeps changing", error=True)

    def _upload(self) -> None:
        begun, size = time.time(), 0
        copies = self._snapshot.copies
        digests = {name: digest_of(copy) for name, copy in copies.items()}
        self._learn_stored()
        # A group that is incomplete keeps its version in the storage, also that of an earlier launch.
        stored = {} if self._stored is None else {item["path"]: item for item in self._stored.files}
        kept = [item for name, item in stored.items() if self._snapshot.is_kept(name)]
        if digests == {name: item["sha256"] for name, item in stored.items() if item not in kept}:
            self._snapshot.keep()  # all is stored, for example because the program has just started with it
            return
        for name, copy in copies.items():
            if digests[name] not in self._uploaded:
                self._store.upload(copy, f"{self._launch}/{digests[name]}")
                self._uploaded.add(digests[name])
                size += copy.stat().st_size
        self._snapshot.verify()
        self._check_newest()
        new = [
            {"path": name, "size": copy.stat().st_size, "sha256": digests[name], "launch": self._launch}
            for name, copy in copies.items()
        ]
        self._sequence += 1  # never used again, because a write that fails may still have arrived
        manifest = Manifest(self._launch, self._sequence, self._snapshot.label, kept + new)
        self._store.write(manifest.name, manifest.encode())
        self._stored = manifest
        if self._snapshot.written is not None:
            reporting.send({reporting.SAVED_KEY: self._snapshot.written})
        self._snapshot.keep()
        say(f"stored {manifest.label} ({size / 1e6:.1f} MB in {time.time() - begun:.1f} s)")
        self._check_newest()  # its checkpoints may need objects of this launch
        self._collect(manifest)

    def _learn_stored(self) -> None:
        """Read once which checkpoint an earlier carrier of this launch has stored last."""
        if self._sequence < 0:
            own = [name for name in self._store.manifests() if name.startswith(f"{self._launch}/")]
            for name in own:
                with suppress(IncompleteError):
                    self._stored = Manifest.decode(name, self._store.read(name))
            self._sequence = Manifest.sequence_of(own[-1]) if own else 0

    def _check_newest(self) -> None:
        """Raise SupersededError if a newer launch writes to the same URL."""
        newest = self._store.launches()[-1:]
        if newest and newest[0] > self._launch:
            own = self._settings.get("service", "")
            service = json.loads(self._store.read(f"{newest[0]}/launch").decode()).get("service", own)
            of = "" if service == own else f" of service {service}; set another checkpoint_dir"
            raise SupersededError(f"used by the newer launch {newest[0].partition('.')[2]}{of}")

    def _collect(self, newest: Manifest) -> None:
        """Remove old checkpoints, but not `newest`, which a listing may lack."""
        names = [name for name in self._store.names() if LAUNCH.match(name) and name.partition("/")[0] <= self._launch]
        needed, kept = {f"{self._launch}/launch", f"{self._launch}/restored", newest.name} | newest.objects, 1
        for name in reversed([name for name in names if _MANIFEST.fullmatch(name) and name != newest.name]):
            with suppress(IncompleteError, FileNotFoundError):
                manifest = Manifest.decode(name, self._store.read(name))
                if kept < self._settings["keep"] and manifest.objects.issubset(names):
                    kept += 1
                    needed |= {name} | manifest.objects
        # Manifests first: a checkpoint that exists has all of its files.
        for name in sorted(set(names) - needed, key=lambda name: not _MANIFEST.fullmatch(name)):
            self._store.remove(name)
        self._uploaded = {name.partition("/")[2] for name in needed if name.startswith(f"{self._launch}/")}

    def _save_plain(self, with_models: bool) -> None:
        """Upload changed event files and logs (`with_models`: and models) as plain files."""
        paths = {str(path.relative_to(LOCAL)): path for path in sorted(LOCAL.rglob("*")) if not path.is_symlink()}
        models = set(self._snapshot.models()) if with_models else set()
        for name, path in paths.items():
            if path.is_file() and (is_plain(name) or name in models):
                status = path.stat()
                if self._plain.get(name) != (status.st_size, status.st_mtime_ns):
                    self._store.upload(path, name, carried=False)
                    self._plain[name] = (status.st_size, status.st_mtime_ns)


class RunningProgram:
    """State of the program, which the executor reports through stdin.

    When the program exits, the executor writes the program's process id and exit code to stdin, also `stopped` if the
    task is stopped, and closes stdin.
    """

    def __init__(self) -> None:
        #: When it exited; None: it runs.
        self.ended: Optional[float] = None
        self.is_orderly = self.has_succeeded = self.is_stopping = False
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, *_: Any) -> None:
        self.is_stopping = True

    def wait(self, seconds: float) -> None:
        """Wait up to `seconds` until the program exits or the task is stopped."""
        end, was_stopping = time.time() + seconds, self.is_stopping
        while self.ended is None and time.time() < end and self.is_stopping is was_stopping:
            if select.select([0], [], [], _TICK)[0]:
                words = os.read(0, 100).decode().split()
                self.is_stopping = self.is_stopping or "stopped" in words
                while self.is_stopping and words and _is_session_busy(int(words[0])):
                    time.sleep(_TICK)  # the shell may exit before the program, which is saving
                self.has_succeeded = words[1:2] == ["0"]
                self.is_orderly = words[1:2] in _ORDERLY
                self.ended = time.time()


def _is_session_busy(session: int) -> bool:
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.getsid(int(process.name)) == session:
                return True
    return False


def carry(settings: Dict[str, Any]) -> None:
    """Upload or download until the program has ended. Raises SupersededError."""
    program = RunningProgram()
    carrier = Carrier(Store(settings["url"], settings["options"]), settings)
    what = "checkpoints are not stored" if settings["role"] == WRITER else "new files do not arrive"
    problem, since = "", 0.0
    program.wait(_TICK)  # it may have ended before
    while True:
        is_over, pause = program.ended is not None, settings["every"]
        try:
            if carrier.round(program):
                pause = min(pause, _SOON)
            if problem:
                say("the storage works again")
            problem = ""
        except SupersededError:
            raise
        except Exception as error:  # file systems raise any exception, which must not stop the training
            since = since if problem else time.time()
            if describe(error) != problem:
                problem = describe(error)
                say(f"{what}: {problem}; retrying", error=True)
        reporting.send({reporting.STORAGE_KEY: f"{what}: {problem}" if problem else ""})
        if is_over and problem and time.time() > max(since, program.ended or 0.0) + settings["grace"]:
            say(f"gave up; the storage has {carrier.last}, later files are only in the sandbox", error=True)
            return
        if is_over and not problem:
            return
        pause = _RETRY if is_over or program.is_stopping else pause
        time.sleep(pause) if is_over else program.wait(pause)


def say(text: str, error: bool = False) -> None:
    stream = sys.stderr if error else sys.stdout
    stream.write(f"storage: {text}\n".encode(errors="backslashreplace").decode())
    stream.flush()


def main(mode: str, settings: Dict[str, Any]) -> int:
    """Run `bring` or `carry`; return the exit code."""
    try:
        (bring if mode == "bring" else carry)(settings)
    except Exception as error:  # file systems raise any exception
        say(f"{redacted(settings['url'])}: {describe(error)}", error=True)
        # Only another machine may have a package, another key or another folder.
        is_final = isinstance(error, (NoPackageError, StorageError)) or is_refused(error)
        return SUPERSEDED if isinstance(error, SupersededError) else NO_PACKAGE if is_final else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], json.loads(os.environ.pop(SETTINGS_VARIABLE))))
