"""Create, list and remove runtimes, which are named virtual environments.

A virtual environment cannot be moved, so it is created in place. A file written last marks it as complete; a folder
without that file is not a runtime and is created again. A file lock serializes concurrent changes to one name.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from importlib import metadata
from pathlib import Path

from tf_scheduler.errors import JobError

from .catalogue import OLDEST_PYTHON, RuntimeRequest, is_supported_python, pip_arguments, request_problems

#: Marker of a complete runtime, with its content.
_COMPLETE = "runtime.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
#: Lines of pip's output in an error.
_MAX_LINES = 8
_TRACEBACK = "Traceback (most recent call last):"
#: Lines of output that are kept for an error.
_MAX_KEPT = 1000
#: Beginnings of pip's lines that show its progress, and the displayed characters of each.
_PROGRESS = ("Downloading ", "Using cached ", "Processing ", "Building ", "Installing ")
_WIDTH = 100
#: Line before each import of the check.
_IMPORTING = "importing "
_IMPORT = f"""
import importlib, sys
for name in sys.argv[1:]:
    print("{_IMPORTING}" + name, file=sys.stderr, flush=True)
    importlib.import_module(name)
"""
#: Packages of every virtual environment.
_TOOLS = ("pip", "setuptools", "wheel")
Report = Callable[[str], object]
_PRINT_VERSION = "import platform; print(platform.python_version())"


@dataclass(frozen=True, slots=True)
class Runtime:
    """A complete runtime."""

    name: str
    #: Path of the interpreter, for the option `python`.
    python: str
    #: Version of the interpreter, such as 3.11.7.
    version: str
    tensorflow: str
    others: tuple[str, ...]
    builds: tuple[str, ...] = ()

    @property
    def content(self) -> tuple[str, ...]:
        """Packages of the runtime, for display."""
        return (*([f"TensorFlow {self.tensorflow}"] if self.tensorflow else []), *self.others, *self.builds)


def runtimes_folder() -> Path:
    """`$XDG_DATA_HOME/dcos-tensorflow/runtimes`; XDG ignores a relative value."""
    data_home = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (data_home if data_home.is_absolute() else Path.home() / ".local" / "share") / "dcos-tensorflow" / "runtimes"


def create_runtime(name: str, wanted: RuntimeRequest, python: str = "", report: Report = str) -> tuple[Runtime, bool]:
    """Return the existing or created runtime, and whether it was created now.

    `python`: a version such as `3.11`; empty: the running version. `report`: called with lines about the progress.
    Raises JobError if the request is invalid (with all problems), if pip fails (with its output), or if a runtime of
    this name has other content.
    """
    interpreter, version = _interpreter(python, wanted)
    problems = [] if _NAME.fullmatch(name) else [f"`{name}`: invalid name: use letters, digits, '.', '_' and '-'"]
    problems += request_problems(wanted, ".".join(version.split(".")[:2]))
    if problems:
        raise JobError("\n".join(problems))
    folder = runtimes_folder() / name
    with _lock(folder):
        existing = _read(folder)
        if existing is not None:
            return _checked_content(existing, wanted, version), False
        report(f"creating {name}; TensorFlow and PyTorch take a minute or more")
        return _make(folder, wanted, (interpreter, version), report), True


def list_runtimes() -> list[Runtime]:
    """Return all complete runtimes by name."""
    home = runtimes_folder()
    folders = sorted(home.iterdir()) if home.is_dir() else []
    return [runtime for folder in folders if (runtime := _read(folder)) is not None]


def find_runtime(name: str) -> Runtime:
    """Return the runtime. Raises JobError with the valid names."""
    runtimes = {runtime.name: runtime for runtime in list_runtimes()}
    if name not in runtimes:
        raise JobError(f"unknown runtime `{name}`; valid names: {', '.join(runtimes) or 'none'}")
    return runtimes[name]


def remove_runtime(name: str) -> None:
    """Remove a runtime, also an incomplete one. Raises JobError if it does not exist."""
    folder = runtimes_folder() / name
    if not _NAME.fullmatch(name) or not folder.is_dir():
        find_runtime(name)
    with _lock(folder):
        _delete(folder)


def _interpreter(python: str, wanted: RuntimeRequest) -> tuple[str, str]:
    """Return path and version of the first Python that starts; pyenv's may not start."""
    paths = list(_candidates(python)) if python else [sys.executable]
    if python and not is_supported_python(python):
        raise JobError(f"--python: `{python}`: must be 3.{OLDEST_PYTHON} or newer, such as 3.11")
    if not paths:
        own = f"{sys.version_info.major}.{sys.version_info.minor}"
        advice = "install it" if request_problems(wanted, own) else "install it, or omit --python"
        raise JobError(f"python{python} is not installed on this machine; {advice}")
    problems = []
    for path in paths:
        try:
            done = subprocess.run([path, "-I", "-c", _PRINT_VERSION], capture_output=True, text=True, check=True)
            return path, done.stdout.strip()
        except (OSError, subprocess.SubprocessError) as error:
            problems.append(f"{path} does not work: {_reason(error)}")
    raise JobError("\n".join(problems))


def _reason(error: OSError | subprocess.SubprocessError) -> str:
    """Return the program's last line of output, or its exit code."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    lines = (getattr(error, "stderr", "") or "").strip().splitlines()
    return lines[-1] if lines else f"exit code {getattr(error, 'returncode', 'unknown')}"


def _candidates(python: str) -> Iterator[str]:
    """Yield interpreters on the PATH, then all of pyenv, also unselected versions."""
    program = f"python{python}"
    for folder in os.get_exec_path():
        path = Path(folder) / program
        if os.access(path, os.X_OK):
            yield str(path)
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    with suppress(PermissionError):  # a folder of another user
        yield from (str(path) for path in sorted(root.glob(f"versions/{python}.*/bin/{program}")))


def is_own_interpreter(python: str) -> bool:
    """Whether this user has chosen an interpreter, as a runtime or on the PATH.

    Any other path in a file of another author may be a program that checking the file must not start.
    """
    path, folders = Path(python), os.environ.get("PATH", os.defpath).split(":")
    is_on_path = python == path.name or (path.is_absolute() and str(path.parent) in folders)
    if is_on_path and re.fullmatch(r"python[\d.]*", path.name):
        return True
    return python in (sys.executable, *(runtime.python for runtime in list_runtimes()))


def interpreter_problem(python: str, agent_path: str) -> str:
    """Return why this machine's agents cannot start an interpreter; empty if they can."""

    def starts(name: str) -> bool:  # pyenv's may fail
        command = ["/bin/sh", "-c", '"$0" -c ""', name]
        done = subprocess.run(command, env={**os.environ, "PATH": agent_path}, capture_output=True, check=False)
        return not done.returncode

    if starts(python):
        return ""
    own, is_path = shutil.which(python), os.sep in python
    names = {path.name for folder in agent_path.split(":") for path in Path(folder).glob("python3*[0-9]")}
    near = [own] if own and not is_path and starts(own) else get_close_matches(Path(python).name, sorted(names), n=1)
    where = "on this machine" if is_path else f"in the agents' PATH ({agent_path})"
    verb = "exist" if shutil.which(python, path=agent_path) is None else "start"
    return f"program `{python}` does not {verb} {where}" + (f"; did you mean `{near[0]}`?" if near else "")


def _checked_content(existing: Runtime, wanted: RuntimeRequest, version: str) -> Runtime:
    present = (existing.tensorflow, existing.others, existing.builds, existing.version)
    if present != (wanted.tensorflow, wanted.others, wanted.builds, version):
        content = ", ".join([*existing.content, *([] if existing.tensorflow else ["but without TensorFlow"])])
        what = f"`{existing.name}` already exists, on Python {existing.version} with {content}"
        raise JobError(f"{what}; remove it, or use another name")
    return existing


def _make(folder: Path, wanted: RuntimeRequest, interpreter: tuple[str, str], report: Report) -> Runtime:
    _delete(folder)
    try:
        _run("the creation of the virtual environment", [interpreter[0], "-m", "venv", str(folder)])
        python = folder / "bin" / "python"
        pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--progress-bar=off"]
        for arguments in pip_arguments(wanted):
            _run(f"pip install {' '.join(arguments)}", [*pip, *arguments], python.parent, report)
        _check(python, report)
        runtime = Runtime(folder.name, str(python), interpreter[1], wanted.tensorflow, wanted.others, wanted.builds)
        (folder / _COMPLETE).write_text(json.dumps(asdict(runtime)))
    except BaseException:
        _delete(folder)
        raise
    return runtime


def _run(what: str, command: list[str], programs: Path | None = None, report: Report = str) -> None:
    """Run a program; `programs`: first folder in PATH. Raises JobError with output."""
    environment = _environment()
    if programs is not None:
        environment["PATH"] = os.pathsep.join([str(programs), *os.get_exec_path()])
    output: deque[str] = deque(maxlen=_MAX_KEPT)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment
    ) as process:
        for line in filter(str.strip, process.stdout or ()):
            output.append(line.rstrip())
            if line.strip().startswith(_PROGRESS):
                report(f"  {line.strip()[:_WIDTH]}")
    if process.returncode:
        lines = list(output)
        last = lines[-1:] if _TRACEBACK in lines else lines[-_MAX_LINES:]  # a traceback of pip does not help users
        raise JobError("\n".join([f"{what} failed with exit code {process.returncode}:", *last]))


def _check(python: Path, report: Report) -> None:
    """Check versions and imports. Raises JobError, which names conflicting packages."""
    report("checking the packages")
    done = subprocess.run(
        [str(python), "-m", "pip", "check", "--disable-pip-version-check"],
        capture_output=True,
        text=True,
        env=_environment(),
    )
    # tf_keras requires `tensorflow`, and tensorflow-cpu is installed.
    wrong = [line for line in done.stdout.splitlines() if "requires tensorflow, which" not in line]
    if done.returncode and wrong:
        raise JobError("\n".join(["the installed packages do not match:", *wrong[:_MAX_LINES]]))
    modules = _requested_modules(next((python.parents[1] / "lib").glob("python*/site-packages")))
    tried = subprocess.run(
        [str(python), "-c", _IMPORT, *modules.values()],
        capture_output=True,
        text=True,
        errors="replace",
        env=_environment(),
    )
    if reason := _import_problem(tried):
        raise JobError(f"these packages do not work together: {', '.join(modules)}\n{reason}")


def _import_problem(done: subprocess.CompletedProcess[str]) -> str:
    """Return why an import failed, or empty. tensorflow_datasets only logs failures."""
    lines = done.stderr.splitlines()
    if not done.returncode and _TRACEBACK not in lines:
        return ""
    end = lines.index(_TRACEBACK) if _TRACEBACK in lines else len(lines)
    name = next((line.removeprefix(_IMPORTING) for line in reversed(lines[:end]) if line.startswith(_IMPORTING)), "")
    packages = re.findall(r'^ +File ".*/site-packages/(\w+)', "\n".join(lines[end:]), re.MULTILINE)
    errors = [line for line in lines[end:] if re.match(r"[\w.]+(Error|Exception|Exit)\b", line)]
    reason = re.sub(r" \(/.*\)$", "", errors[-1]) if errors else f"exit code {done.returncode}"
    return f"cannot import {name}{f', in {packages[-1]}' if packages else ''}: {reason}"


def _requested_modules(folder: Path) -> dict[str, str]:
    """Return "name version" -> module for each package that the user requested."""
    modules = {}
    for package in metadata.distributions(path=[str(folder)]):
        name = str(package.metadata["Name"])
        if package.read_text("REQUESTED") is None or name in _TOOLS:
            continue
        present = (package.read_text("top_level.txt") or "").split()
        candidates = [name.replace("-", "_"), *present, "tensorflow" if name.startswith("tensorflow") else ""]
        importable = (each for each in candidates if each and _is_module(folder, each))
        module = next(importable, "")
        if module:
            modules[f"{name} {package.version}"] = module
    # TensorFlow first: packages that extend it expect its libraries.
    return dict(sorted(modules.items(), key=lambda item: (item[1] != "tensorflow", item[0])))


def _is_module(folder: Path, name: str) -> bool:
    return (folder / f"{name}.py").is_file() or (folder / name / "__init__.py").is_file()


def _environment() -> dict[str, str]:
    """Return the environment without variables that select this Python's packages."""
    excluded = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if name not in excluded}


def _read(folder: Path) -> Runtime | None:
    """Return the runtime, or None if it does not exist or is incomplete."""
    try:
        document = json.loads((folder / _COMPLETE).read_text())
        lists = {name: tuple(document.get(name, ())) for name in ("others", "builds")}
        runtime = Runtime(**{**document, **lists})
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return runtime if Path(runtime.python).exists() else None


def _delete(folder: Path) -> None:
    """Remove a runtime. Remove its marker first: a partial runtime then is incomplete."""
    (folder / _COMPLETE).unlink(missing_ok=True)
    if folder.exists():
        shutil.rmtree(folder)


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
