"""Gives the user's program its part of this package: a folder with a few modules, for its PYTHONPATH.

The bundle itself is no place for that: on PYTHONPATH it would put the libraries of the executor before the user's, and
most of its modules need a newer Python than TensorFlow 1 can have.
"""

from __future__ import annotations

import os
import pkgutil
from pathlib import Path

#: Folder in the working directory for all that the executor needs there.
FOLDER = ".tf_executor"
#: What the user's Python may import: standard library only, Python 3.6.
MODULES = (
    "__init__",
    "archive",
    "data_service",
    "devices",
    "fetch",
    "folders",
    "gpu_check",
    "job",
    "keras",
    "reporting",
)
#: What its Python imports by itself, before the program.
START = "sitecustomize"
#: The named pipe of `reporting`.
PIPE = "progress"


def write(sandbox: str) -> Path:
    """Write the modules; return the folder for PYTHONPATH. Raise OSError."""
    folder = Path(sandbox).absolute() / FOLDER
    package = folder / "tf_executor"
    package.mkdir(parents=True, exist_ok=True)
    for module in MODULES:
        (package / f"{module}.py").write_bytes(_source(module))
    (folder / f"{START}.py").write_bytes(_source(START))
    return folder


def _source(module: str) -> bytes:
    source = pkgutil.get_data("tf_executor", f"{module}.py")
    assert source is not None, module
    return source


def make_pipe(folder: Path) -> Path:
    """A new named pipe in `folder`, which every user may write to. Raise OSError."""
    pipe = folder / PIPE
    if not pipe.exists():
        os.mkfifo(pipe)
    pipe.chmod(0o622)
    return pipe
