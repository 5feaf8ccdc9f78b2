"""Which Python the user's program gets, and a folder in which it is called `python` and `python3`."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

#: Folder inside the sandbox for the two names, where the interpreter's own folder has them not.
NAMES_FOLDER = ".python"
_NAMES = ("python", "python3")


class InterpreterError(ValueError):
    """The interpreter that the task asks for is not on this agent."""


@dataclass(frozen=True)
class Interpreter:
    """Where the interpreter is."""

    #: Absolute path; links are kept, because a virtual environment is recognised by the link's place.
    executable: str
    #: Folders for the front of PATH, first wins.
    folders: tuple[str, ...]
    #: Root of the virtual environment that it belongs to, or empty.
    virtual_env: str = ""


def find_interpreter(python: str, search_path: str, sandbox: str) -> Interpreter:
    """Resolve `python` (a path, a name for `search_path`, or empty: ours) and make sure that `python` means it.

    Many systems have only `python3`, and a folder such as /usr/bin holds several versions. Then two one-line
    scripts are written to `sandbox`/.python: a link there would hide the virtual environment.
    Raise InterpreterError when there is no such interpreter.
    """
    executable = _resolve(python, search_path)
    home = Path(executable).parent
    folders: tuple[str, ...] = (str(home),)
    if not all(_same(home / name, executable) for name in _NAMES):
        folders = (str(_write_names(executable, sandbox)), *folders)
    venv = home.parent if (home.parent / "pyvenv.cfg").is_file() else None
    return Interpreter(executable, folders, str(venv or ""))


def _resolve(python: str, search_path: str) -> str:
    if not python:
        return sys.executable
    found = shutil.which(python, path=search_path)
    if found is None:
        where = "" if os.sep in python else f" in PATH {search_path}"
        raise InterpreterError(f"the task's Python {python!r} is no executable file on this agent{where}")
    return str(Path(found).absolute())


def _same(name: Path, executable: str) -> bool:
    return name.exists() and name.samefile(executable)


def _write_names(executable: str, sandbox: str) -> Path:
    folder = Path(sandbox) / NAMES_FOLDER
    folder.mkdir(exist_ok=True)
    for name in _NAMES:
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(executable)} "$@"\n')
        script.chmod(0o755)
    return folder.absolute()
