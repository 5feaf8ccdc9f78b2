"""The user's options as they are: read with errors that name them. `files` checks them, which takes longer."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tf_scheduler.errors import OptionsError, Problem
from tf_scheduler.options.parse import parse
from tf_scheduler.options.variables import as_lists

from .runtime_names import with_runtimes

#: Seconds that Mesos keeps the tasks of a local run whose command is gone: nobody will come back for them.
FAILOVER = 10.0

Options = Mapping[str, Any]


def read(path: Path) -> dict[str, Any]:
    """The document of an options file, with the interpreters of the runtimes that it names. Raise OptionsError."""
    return with_runtimes(parse(read_bytes(path), str(path)))


def load_document(path: Path) -> dict[str, Any]:
    """A valid options file as Cosmos takes it: environments as lists, paths absolute; else as it is."""
    return dict(localised(as_lists(read(path)), path.parent.resolve()))


def read_bytes(path: Path) -> bytes:
    """A file of the user's. Raise OptionsError that names it."""
    if path.exists() and not path.is_file():
        raise OptionsError([Problem("", f"{path} is not a file")])
    try:
        return path.read_bytes()
    except OSError as error:
        raise OptionsError([Problem("", f"{path}: {error.strerror}")]) from error


def can_check_gpus() -> bool:
    """Whether jobs can look for their GPUs: local agents only count them, this machine may have none."""
    return shutil.which("nvidia-smi") is not None


def localised(options: Options, folder: Path) -> Options:
    """Paths made absolute: the agents have other working directories."""
    service, executor = dict(options.get("service", {})), dict(options.get("executor", {}))
    for section, name in ((service, "job_url"), (executor, "url")):
        path = local_path(section.get(name, ""), folder)
        if path is not None:
            section[name] = path.resolve().as_uri()
    checkpoints = service.get("checkpoint_dir", "")
    if checkpoints and "://" not in checkpoints:
        service["checkpoint_dir"] = str(folder / Path(checkpoints).expanduser())
    return {**options, "service": service, "executor": executor}


def local_path(url: str, folder: Path) -> Path | None:
    """The file that a path or a file:// URL points to; None for other URLs and for none."""
    if url.startswith("file://"):
        return Path(unquote(url.removeprefix("file://")))
    return folder / Path(url).expanduser() if url and "://" not in url else None
