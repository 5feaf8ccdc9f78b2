"""Runtimes on disk: made whole or not at all, listed, removed.

Each is a virtual environment in a folder of its name. A virtual environment cannot be moved, so it is made where it
stays, and a file that is written last says that it is complete; without that file it is no runtime, and the next
attempt begins anew. A lock keeps two attempts at one name apart; it ends with its process.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from tf_scheduler.errors import JobError

from .catalogue import OLDEST_PYTHON, RuntimeRequest, is_supported_python, pip_arguments, request_problems

#: Written last.
_COMPLETE = "runtime.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
#: Lines of pip's output that an error shows.
_MAX_LINES = 8
_TRACEBACK = "Traceback (most recent call last):"
_PRINT_VERSION = "import platform; print(platform.python_version())"


@dataclass(frozen=True, slots=True)
class Runtime:
    """One that is complete."""

    name: str
    #: Its interpreter: what options name as `python`.
    python: str
    #: Version of the interpreter, such as 3.11.7.
    version: str
    tensorflow: str
    others: tuple[str, ...]
    builds: tuple[str, ...] = ()

    @property
    def content(self) -> tuple[str, ...]:
        """In words, for people."""
        return (*([f"TensorFlow {self.tensorflow}"] if self.tensorflow else []), *self.others, *self.builds)


def runtimes_folder() -> Path:
    """`$XDG_DATA_HOME/dcos-tensorflow/runtimes`. A relative value is ignored (XDG base directory specification)."""
    given = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".local" / "share") / "dcos-tensorflow" / "runtimes"


def create_runtime(
    name: str, wanted: RuntimeRequest, python: str = "", begins: Callable[[], None] = lambda: None
) -> tuple[Runtime, bool]:
    """The runtime, and whether it was made now. `python`: `3.11`; empty: the one that runs us. `begins`: called before.

    Raise JobError with every reason why it cannot be, or with what pip says. One with that name and the same content is
    left as it is; one with another content is refused.
    """
    interpreter, version = _interpreter(python)
    wrong = (
        [] if _NAME.fullmatch(name) else [f"{name} is no name: letters, digits, '.', '_' and '-'"]
    ) + request_problems(wanted, ".".join(version.split(".")[:2]))
    if wrong:
        raise JobError("\n".join(wrong))
    folder = runtimes_folder() / name
    with _lock(folder):
        there = _read(folder)
        if there is not None:
            return _checked_content(there, wanted, version), False
        begins()
        return _make(folder, wanted, interpreter, version), True


def list_runtimes() -> list[Runtime]:
    """All that are complete, by name."""
    home = runtimes_folder()
    folders = sorted(home.iterdir()) if home.is_dir() else []
    return [found for folder in folders if (found := _read(folder)) is not None]


def find_runtime(name: str) -> Runtime:
    """Raise JobError that names what there is."""
    found = {one.name: one for one in list_runtimes()}
    if name not in found:
        raise JobError(f"there is no runtime {name}; there are: {', '.join(found) or 'none'}")
    return found[name]


def remove_runtime(name: str) -> None:
    """Also one that was left half-made. Raise JobError when there is none."""
    folder = runtimes_folder() / name
    if not _NAME.fullmatch(name) or not folder.is_dir():
        find_runtime(name)
    with _lock(folder):
        _delete(folder)


def _interpreter(python: str) -> tuple[str, str]:
    """Path and version of the first that works: a name on the PATH may stand for nothing, as pyenv's do."""
    paths = list(_candidates(python)) if python else [sys.executable]
    if python and not is_supported_python(python):
        raise JobError(f"--python must be a version of Python 3 from 3.{OLDEST_PYTHON} on, such as 3.11, not {python}")
    if not paths:
        raise JobError(f"there is no program python{python} on this machine; install it, or leave --python out")
    wrong = []
    for path in paths:
        try:
            done = subprocess.run([path, "-I", "-c", _PRINT_VERSION], capture_output=True, text=True, check=True)
            return path, done.stdout.strip()
        except (OSError, subprocess.SubprocessError) as error:
            wrong.append(f"{path} does not work: {_reason(error)}")
    raise JobError("\n".join(wrong))


def _reason(error: OSError | subprocess.SubprocessError) -> str:
    """What the program said last, or how it ended."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    said = (getattr(error, "stderr", "") or "").strip().splitlines()
    return said[-1] if said else f"it ends with {getattr(error, 'returncode', 'an error')}"


def _candidates(python: str) -> Iterator[str]:
    """On the PATH, and of pyenv, which hides the versions that are not chosen."""
    program = f"python{python}"
    for folder in os.get_exec_path():
        path = Path(folder) / program
        if os.access(path, os.X_OK):
            yield str(path)
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    with suppress(PermissionError):  # of another user's
        yield from (str(path) for path in sorted(root.glob(f"versions/{python}.*/bin/{program}")))


def _checked_content(there: Runtime, wanted: RuntimeRequest, version: str) -> Runtime:
    has = (there.tensorflow, there.others, there.builds, there.version)
    if has != (wanted.tensorflow, wanted.others, wanted.builds, version):
        content = ", ".join([*([] if there.tensorflow else ["no TensorFlow"]), *there.content])
        raise JobError(
            f"{there.name} is there already, with {content} on Python {there.version}; remove it, or use another name"
        )
    return there


def _make(folder: Path, wanted: RuntimeRequest, interpreter: str, version: str) -> Runtime:
    _delete(folder)
    try:
        _run("the virtual environment", [interpreter, "-m", "venv", str(folder)])
        python = folder / "bin" / "python"
        pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
        for given in pip_arguments(wanted):
            _run(f"pip install {' '.join(given)}", [*pip, *given], python.parent)
        made = Runtime(folder.name, str(python), version, wanted.tensorflow, wanted.others, wanted.builds)
        (folder / _COMPLETE).write_text(json.dumps(asdict(made)))
    except BaseException:
        _delete(folder)
        raise
    return made


def _run(what: str, command: list[str], programs: Path | None = None) -> None:
    """Raise JobError with the end of what it says. `programs`: a folder of such as come before others of their name."""
    environment = _environment()
    if programs is not None:
        environment["PATH"] = os.pathsep.join([str(programs), *os.get_exec_path()])
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        shown = said[-1:] if _TRACEBACK in said else said[-_MAX_LINES:]  # where in pip it was is nothing to the user
        raise JobError("\n".join([f"{what} failed with exit code {done.returncode}:", *shown]))


def _environment() -> dict[str, str]:
    """Ours, without what would lead the new interpreter to our packages."""
    return {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    }


def _read(folder: Path) -> Runtime | None:
    """None: there is none, or it is not complete."""
    try:
        document = json.loads((folder / _COMPLETE).read_text())
        lists = {name: tuple(document.get(name, ())) for name in ("others", "builds")}
        found = Runtime(**{**document, **lists})
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return found if Path(found.python).exists() else None


def _delete(folder: Path) -> None:
    """The file that makes it complete goes first: whoever looks on sees all of it or nothing."""
    (folder / _COMPLETE).unlink(missing_ok=True)
    if folder.exists():
        shutil.rmtree(folder)


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
