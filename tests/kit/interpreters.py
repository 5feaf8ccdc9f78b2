"""The Pythons of this machine, and what programs print on them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from .commands import run_program


def interpreters(oldest: int, newest: int) -> list[Path]:
    """Return a Python 3 of each minor version in this range that this machine has."""
    folders = [*Path.home().glob(".pyenv/versions/3.*/bin"), *map(Path, os.get_exec_path())]
    paths: dict[int, Path] = {}
    for minor in range(oldest, newest + 1):
        for path in (folder / f"python3.{minor}" for folder in folders):
            # A shim of a version manager exists for versions that are not selected.
            if minor not in paths and path.is_file() and _runs(path):
                paths[minor] = path
    return list(paths.values())


def _runs(python: Path) -> bool:
    return run_program(python, "-V").returncode == 0


def output_of(command: Sequence[str | Path], folder: Path, **environment: str) -> str:
    """Return the output of a successful, silent command with PATH and variables."""
    variables = {"PATH": os.environ["PATH"], **environment}
    result = run_program(*command, env=variables, cwd=folder)
    assert (0, "") == (result.returncode, result.stderr)
    return result.stdout


def library_path() -> str:
    """Return sys.path without this Python's standard library, for another Python."""
    return os.pathsep.join(path for path in sys.path if path and not path.startswith(sys.base_prefix))
