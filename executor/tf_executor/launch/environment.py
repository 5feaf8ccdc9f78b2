"""Interpreter, environment variables, command lines and user package of a task."""

from __future__ import annotations

import json
import os
import pkgutil
import posixpath
import re
import shlex
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Mapping, Sequence

from tf_executor import user
from tf_executor.contract.payload import CHECKPOINT_DIR, Payload
from tf_executor.contract.strategies import Strategy
from tf_executor.lifecycle.events import Stage
from tf_executor.process.watchdog_process import remove_folder
from tf_executor.user import devices, fetch, members, reporting, storage

# Interpreter.

#: Folder in the sandbox for scripts named `python` and `python3`.
SCRIPT_FOLDER = ".python"
_NAMES = ("python", "python3")


class InterpreterError(ValueError):
    """The requested interpreter does not exist on this agent."""


@dataclass(frozen=True)
class Interpreter:
    """Paths of an interpreter."""

    #: Absolute path; links are kept, because a virtual environment is recognised by its link.
    executable: str
    #: Folders to prepend to PATH, in this order.
    folders: tuple[str, ...]
    #: Root of its virtual environment, or empty.
    virtual_env: str = ""


def find_interpreter(python: str, search_path: str, sandbox: str) -> Interpreter:
    """Find the interpreter and make the commands `python` and `python3` start it.

    `python`: a path, a name in `search_path`, or empty for the executor's own. If one of the two names is missing in
    the interpreter's folder, or is another version, two scripts are written to the sandbox. They are not links, because
    a link would hide the virtual environment. Raises InterpreterError.
    """
    executable = _resolve(python, search_path)
    home = Path(executable).parent
    folders: tuple[str, ...] = (str(home),)
    if not all((home / name).exists() and (home / name).samefile(executable) for name in _NAMES):
        folders = (str(_write_scripts(executable, sandbox)), *folders)
    venv = home.parent if (home.parent / "pyvenv.cfg").is_file() else None
    return Interpreter(executable, folders, str(venv or ""))


def _resolve(python: str, search_path: str) -> str:
    if not python:
        return sys.executable
    path = shutil.which(python, path=search_path)
    if path is None:
        where = "" if os.sep in python else f" (searched in PATH `{search_path}`)"
        raise InterpreterError(f"option python: `{python}`: not an executable file on this agent{where}")
    return str(Path(path).absolute())


def _write_scripts(executable: str, sandbox: str) -> Path:
    folder = _make_folder(Path(sandbox) / SCRIPT_FOLDER)
    for name in _NAMES:
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(executable)} "$@"\n')
        script.chmod(0o755)
    return folder.absolute()


def _make_folder(folder: Path) -> Path:
    """Make a folder in place of what an archive of the job has put there."""
    remove_folder(str(folder))
    folder.mkdir()
    return folder


# Environment variables.

#: MESOS_ variables for the program. The others, such as the agent's authentication token, are for the executor; a
#: Mesos client in the program would use them as its own.
PUBLIC_MESOS_VARIABLES = frozenset(
    ["MESOS_SANDBOX", "MESOS_DIRECTORY", "MESOS_FRAMEWORK_ID", "MESOS_EXECUTOR_ID", "MESOS_SLAVE_ID", "MESOS_TASK_ID"]
)
#: The agent's default PATH (its `executorEnvironment`).
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Default folder in the sandbox for logs and checkpoints.
LOG_FOLDER = "logs"
#: Variable with the folder for temporary files (POSIX, 8.3).
TMPDIR = "TMPDIR"


@dataclass(frozen=True)
class TaskPaths:
    """Paths that the program gets."""

    sandbox: str
    interpreter: Interpreter
    #: Folder of the user package; empty: not created.
    user_package: str = ""
    #: Named pipe for progress; empty: none.
    progress: str = ""
    #: Folder for temporary files; empty: the system's.
    temporary: str = ""
    #: File with the wanted workers of a chief; empty: none.
    members: str = ""


def program_environment(
    payload: Payload, base: Mapping[str, str], paths: TaskPaths, gpus: Sequence[str] | None = ()
) -> dict[str, str]:
    """Return the program's environment; `payload.environment` overrides the rest.

    `base`: the executor's own environment; an agent passes neither HOME nor LANG on. `gpus`: indices or UUIDs of the
    task's GPUs; None: all GPUs of the container.
    """
    result = public_variables(base)
    result.setdefault("HOME", paths.sandbox)
    result.setdefault("LANG", "C.UTF-8")
    result.update(payload.cluster_variables())
    result["PYTHONUNBUFFERED"] = "1"
    result["PATH"] = ":".join((*paths.interpreter.folders, base.get("PATH") or DEFAULT_PATH))
    if paths.interpreter.virtual_env:
        result["VIRTUAL_ENV"] = paths.interpreter.virtual_env
    result["SANDBOX"] = paths.sandbox
    result.update(_job_variables(payload, paths.sandbox))
    result.update(_gpu_variables(payload.gpus, gpus))
    if paths.progress:
        result[reporting.PIPE_VARIABLE] = paths.progress
    if paths.members:
        result[members.FILE_VARIABLE] = paths.members
    if paths.temporary:
        result[TMPDIR] = paths.temporary
    result.update(payload.environment)
    result["PYTHONPATH"] = _python_path(payload, paths, result.get("PYTHONPATH", ""))
    return {name: value for name, value in result.items() if value or name != "PYTHONPATH"}


def public_variables(base: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without those of the agent and the executor."""
    private = ("LIBPROCESS_", "MESOS_")
    return {n: value for n, value in base.items() if n in PUBLIC_MESOS_VARIABLES or not n.startswith(private)}


def log_dir(payload: Payload, sandbox: str) -> str:
    """Return the folder or URL for logs and checkpoints."""
    return payload.log_dir or f"{sandbox}/{LOG_FOLDER}"


def _job_variables(payload: Payload, sandbox: str) -> dict[str, str]:
    """Return the variables that `user.job` reads."""
    variables = {"LOG_DIR": log_dir(payload, sandbox)}
    if payload.strategy:
        variables["DISTRIBUTION_STRATEGY"] = payload.strategy
    if payload.job_name:
        variables.update({"JOB_MODULE": payload.job_name, "JOB_CONTEXT": payload.job_context})
    return variables


def _gpu_variables(count: int, gpus: Sequence[str] | None) -> dict[str, str]:
    if count == 0:
        # TensorFlow uses every GPU it sees, and an agent without the GPU isolator hides none.
        return {devices.GPU_COUNT_VARIABLE: "0", "CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}
    # Without memory growth TensorFlow reserves all memory of a GPU.
    variables = {devices.GPU_COUNT_VARIABLE: str(count), "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    if gpus is not None:
        variables.update(dict.fromkeys(("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"), ",".join(gpus)))
    return variables


def _python_path(payload: Payload, paths: TaskPaths, inherited: str) -> str:
    """Return PYTHONPATH: the user's folders before the user package."""
    hook = str(Path(paths.members).parent) if paths.members else ""
    job = paths.sandbox if payload.job_name else ""
    if payload.job_path:
        job = posixpath.join(paths.sandbox, payload.job_path)
    return ":".join(folder for folder in (hook, job, inherited, paths.user_package) if folder)


# Command lines.

#: `{name}`, but not the shell's `${name}`.
_PLACEHOLDER = re.compile(r"(?<!\$)\{([a-z_]+[0-9]?)\}")


def stages_of(payload: Payload) -> tuple[Stage, ...]:
    """Return the stages of the task, in order."""
    needed = {
        Stage.FENCE: bool(payload.fenced_folder),
        Stage.SECRETS: bool(payload.secrets_url),
        Stage.DEVICES: payload.gpus > 0,
        Stage.STORAGE: bool(payload.storage),
        Stage.FETCH: bool(payload.fetch or payload.links or payload.digests or _archives(payload)),
        Stage.PRE: bool(payload.settings.pre_command),
        Stage.GPU_CHECK: payload.gpus > 0 and payload.settings.gpu_check,
        Stage.PROGRAM: True,
        Stage.KEEP: payload.keep_files > 0,
        Stage.SAVE: bool(payload.storage),
        Stage.POST: bool(payload.settings.post_command),
    }
    return tuple(stage for stage, is_needed in needed.items() if is_needed)


def stage_command(stage: Stage, payload: Payload, sandbox: str, task_id: str = "", started: float = 0.0) -> str:
    """Return the shell command line of a stage that is a process.

    `started`: time of the program's start by the clock of the sandbox's file system, for stages after it.
    """
    if stage is Stage.FETCH:
        return _fetch(payload, sandbox)
    if stage is Stage.KEEP:
        folder = payload.environment[CHECKPOINT_DIR]
        place = fetch.redacted(payload.storage["url"]) if payload.storage else folder
        own = {"task": payload.task, "limit": payload.keep_files, "is_leader": payload.is_leader, "since": started}
        settings = {**own, "launch": task_id, "folder": folder, "place": place}
        return f"exec {_own_python('keep', 'main', sandbox, settings)}"
    if stage is Stage.GPU_CHECK:
        library = Strategy(payload.strategy).traits.library if payload.strategy else "tensorflow"
        check = f"devices.check_gpus({payload.gpus}, {library!r})"
        return f"exec python -c {shlex.quote(f'import sys; from tf_executor import devices; sys.exit({check})')}"
    if stage is Stage.PROGRAM:
        return _program(payload, sandbox)
    hook = payload.settings.pre_command if stage is Stage.PRE else payload.settings.post_command
    return fill_placeholders(hook, payload, sandbox)


def storage_command(mode: str) -> str:
    """Return the command line that restores (`bring`) or stores checkpoints (`carry`)."""
    # A stop must not end the carrier while its Python starts.
    start = "trap '' TERM; exec" if mode == "carry" else "exec"
    return f"{start} python -m tf_executor.storage {mode}"


def storage_variables(payload: Payload, task_id: str) -> dict[str, str]:
    """Return the variable with the settings of `storage_command`."""
    own = {"task_id": task_id, "launched_at": payload.launched_at, "grace": payload.settings.kill_grace}
    return {storage.SETTINGS_VARIABLE: json.dumps({**payload.storage, **own, "service": payload.service})}


def with_local_folder(payload: Payload, sandbox: str) -> Payload:
    """Return the payload with a local folder, whose checkpoints are then carried."""
    folder = str(Path(sandbox).absolute() / storage.LOCAL)
    return replace(payload, log_dir=folder, environment={**payload.environment, CHECKPOINT_DIR: folder})


def _own_python(module: str, function: str, sandbox: str, argument: Mapping[str, object]) -> str:
    """Return a command line that calls the user package in the executor's Python.

    It imports nothing else from the sandbox: a fetched file may have the name of a module.
    """
    call = f"from tf_executor.{module} import {function}; sys.exit({function}(sys.argv[2]))"
    code, folder = f"import sys; sys.path.append(sys.argv[1]); {call}", Path(sandbox).absolute() / PACKAGE_FOLDER
    return shlex.join([sys.executable, "-I", "-S", "-c", code, str(folder), json.dumps(argument)])


def _fetch(payload: Payload, sandbox: str) -> str:
    """Return the command that fetches files, checks digests and extracts archives.

    The fetch uses the program's packages, the rest uses the executor's Python. Files that the agent has fetched may
    shadow the program's packages, so the digests of these files are checked before the fetch.
    """

    def finish(digests: Mapping[str, str], archives: Sequence[str]) -> str:
        files = {"links": dict(payload.links), "digests": digests, "unpack": archives}
        return _own_python("fetch", "finish", sandbox, files)

    last = f"exec {finish(dict(payload.digests), _archives(payload))}"
    if not payload.fetch:
        return last
    later = {fetch.file_name(url) for url in payload.fetch}
    early = {name: digest for name, digest in payload.digests.items() if name not in later}
    check = f"{finish(early, [])} && " if early else ""
    return f"{check}python -m tf_executor.fetch {shlex.join(payload.fetch)} && {last}"


def _archives(payload: Payload) -> list[str]:
    """Return the names of the archives to extract, the executor's downloads first."""
    names = [*map(fetch.file_name, payload.fetch), *payload.unpack]
    if not names:
        return []
    from tf_executor.user.archive import is_archive  # few tasks need its libraries

    return [name for name in names if is_archive(name)]


def _program(payload: Payload, sandbox: str) -> str:
    if not payload.command:
        return "exec python -m tf_executor.job"
    values = placeholders(payload, sandbox)
    flags = [f"--{name}={values[name]}" for name in ("ps_hosts", "worker_hosts", "job_name", "task_index")]
    line = fill_placeholders(payload.command, payload, sandbox)
    return f"{line} {' '.join(map(shlex.quote, flags))}" if payload.settings.cluster_flags else line


def fill_placeholders(text: str, payload: Payload, sandbox: str) -> str:
    """Replace known placeholders; keep other braces, such as those of JSON."""
    values = placeholders(payload, sandbox)
    return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), text)


def placeholders(payload: Payload, sandbox: str) -> Mapping[str, str]:
    variables = payload.cluster_variables()
    names = ("ps_hosts", "worker_hosts", "job_name", "task_index", "task_name")
    return {
        **{name: variables[name.upper()] for name in names},
        "port": str(payload.port),
        **{f"port_{number}": str(port) for number, port in enumerate(payload.more_ports, 1)},
        "log_dir": log_dir(payload, sandbox),
    }


# User package: modules for the program's PYTHONPATH.

#: Folder of the executor in the sandbox.
PACKAGE_FOLDER = ".tf_executor"
#: Modules of `tf_executor.user`.
USER_MODULES = ("__init__", *(module.name for module in pkgutil.iter_modules(user.__path__)))
#: Name of the progress pipe.
PIPE_NAME = "progress"


def write_user_package(sandbox: str) -> Path:
    """Install the user package in the sandbox; return the folder for PYTHONPATH.

    The bundle itself cannot be on PYTHONPATH: its libraries would shadow the user's, and most of its modules need a
    newer Python than TensorFlow 1. Raises OSError.
    """
    folder = _make_folder(Path(sandbox).absolute() / PACKAGE_FOLDER)
    package = folder / "tf_executor"
    package.mkdir()
    for module in USER_MODULES:
        source = pkgutil.get_data("tf_executor.user", f"{module}.py")
        assert source is not None, module
        (package / f"{module}.py").write_bytes(source)
    return folder


#: Runs before the chief's program in its Python, and then the `sitecustomize` that this one hides, if any.
_SITE_CUSTOMIZE = """import os
import sys

sys.path.remove(os.path.dirname(os.path.abspath(__file__)))
_own = sys.modules.pop("sitecustomize")
try:
    import sitecustomize
except ImportError:
    sys.modules["sitecustomize"] = _own
from tf_executor import members

members.watch()
"""


def make_hook(folder: Path) -> Path:
    """Write the hook of `user.members`; return the path for the list. Raises OSError."""
    hook = folder / "members"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(_SITE_CUSTOMIZE)
    return hook / "wanted.json"


def make_pipe(folder: Path) -> Path:
    """Create a named pipe in `folder` that every user may write to. Raises OSError."""
    pipe = folder / PIPE_NAME
    os.mkfifo(pipe)
    pipe.chmod(0o622)
    return pipe
