"""The user's options, checked, and completed with what a laptop knows."""

from __future__ import annotations

import getpass
import os
import pwd
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import click

from tf_scheduler.errors import JobError, OptionsError, Problem
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.options.load import as_lists, parse, resolve
from tf_scheduler.options.schema.document import OPTIONS
from tf_scheduler.options.schema.jobs import JOBS
from tf_scheduler.options.spec import image_of, to_spec
from tf_scheduler.options.warnings import ineffective_options
from tf_scheduler.zipapp_builder import build_bundle

# --- options_file
# The user's options as they are: read with errors that name them. `files` checks them, which takes longer.


# --- runtime_names
# `runtime:NAME` in options, which stands for the interpreter of a runtime on this machine.


_RUNTIME_PREFIX = "runtime:"


def with_runtimes(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with the path in place of each name. Raise OptionsError for runtimes that there are not."""
    found, wrong = dict(document), []
    for name, section in document.items():
        python = section.get("python") if isinstance(section, Mapping) else None
        if isinstance(python, str) and python.startswith(_RUNTIME_PREFIX):
            from tf_scheduler.runtimes.runtimes import find_runtime  # slow to load, and few options name one

            try:
                found[name] = {**section, "python": find_runtime(python.removeprefix(_RUNTIME_PREFIX)).python}
            except JobError as error:
                wrong.append(Problem(f"{name}.python", f"{error}; `dcos-tensorflow runtime create` makes one"))
    if wrong:
        raise OptionsError(wrong)
    return found


# --- document


#: Seconds that Mesos keeps the tasks of a local run whose command is gone: nobody will come back for them.
FAILOVER_TIMEOUT = 10.0

Options = Mapping[str, Any]


def read_options(path: Path) -> dict[str, Any]:
    """The document of an options file, with the interpreters of the runtimes that it names. Raise OptionsError."""
    return with_runtimes(parse(read_bytes(path), str(path)))


def load_document(path: Path) -> dict[str, Any]:
    """A valid options file as Cosmos takes it: environments as lists, paths absolute; else as it is."""
    return dict(with_absolute_paths(as_lists(read_options(path)), path.parent.resolve()))


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


def with_absolute_paths(options: Options, folder: Path) -> Options:
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


# --- local_options


def load_options(path: Path) -> ServiceSpec:
    """The spec of an options file for a run on this machine. Raise OptionsError with every problem.

    What the file leaves open: the user is the one who runs us, the program's interpreter is ours. Paths in it are
    relative to the file. Options without effect are told on standard error.
    """
    folder = path.parent
    rules = (
        lambda options: _missing_files(options, folder),
        _missing_programs,
        _invalid_user,
        _unsupported_isolation,
    )
    options = resolve(read_options(path), local_defaults(), rules)
    for notice in ineffective_options(options):
        click.echo(f"notice: {notice}", err=True)
    return to_spec(with_absolute_paths(options, folder.resolve()))


def scheduler_defaults() -> dict[str, Any]:
    """Option path -> what this machine knows; without the executor, which a scheduler knows by EXECUTOR_URI."""
    defaults = local_defaults()
    return {f"{part}.{name}": value for part in defaults for name, value in defaults[part].items() if name != "url"}


def local_defaults() -> Mapping[str, Mapping[str, Any]]:
    return {
        "service": {"user": getpass.getuser(), "python": sys.executable, "failover_timeout": FAILOVER_TIMEOUT},
        "executor": {"url": build_bundle().as_uri(), "python": sys.executable},
        **{section: {"gpu_check": False} for section in (() if can_check_gpus() else JOBS)},
    }


def _missing_files(options: Options, folder: Path) -> Iterator[Problem]:
    for section, name in (("service", "job_url"), ("executor", "url")):
        path = local_path(options[section][name], folder)
        if path is not None and not path.exists():
            yield Problem(f"{section}.{name}", f"there is no file {path}")
        elif path is not None and not path.is_file():
            yield Problem(f"{section}.{name}", f"{path} is a folder; give a file, or pack the folder as a zip or tgz")


def _missing_programs(options: Options) -> Iterator[Problem]:
    for section, values in options.items():
        python = values.get("python") if isinstance(values, Mapping) else None
        if python and shutil.which(python) is None:
            yield Problem(f"{section}.python", f"there is no program {python} on this machine")


def _invalid_user(options: Options) -> Iterator[Problem]:
    user = options["service"]["user"]
    try:
        other = pwd.getpwnam(user).pw_uid != os.geteuid()
    except KeyError:
        yield Problem("service.user", f"there is no user {user} on this machine")
        return
    if other and os.geteuid() != 0:
        yield Problem("service.user", f"only root can run tasks as another user, here {user}; leave it out")


def _unsupported_isolation(options: Options) -> Iterator[Problem]:
    """Images, networks and mounts need isolators of Mesos that only root on a prepared machine can have."""
    service = options["service"]
    has_gpus = {section: options[section]["gpus"] > 0 for section in JOBS if options[section]["count"]}
    for section, gpus in has_gpus.items():
        if image := image_of(service, options[section]["image"], gpus):
            yield Problem(f"{section}.image", f"the local cluster runs no images, such as {image}: leave it out here")
    if service["virtual_network_enabled"]:
        yield Problem("service.virtual_network_enabled", "the local cluster has no networks but that of this machine")
    if options["volumes"]:
        yield Problem("volumes", "the local cluster mounts nothing: tasks find this machine's folders where they are")


def changed_options(shown: Options, options: Options) -> dict[str, Any]:
    """Return the part of `shown` whose values in `options` differ from the defaults."""
    changed: dict[str, Any] = {}
    for option in OPTIONS:
        if option.value(options) != option.default:
            section = changed
            for name in option.path[:-1]:
                section = section.setdefault(name, {})
            section[option.path[-1]] = option.value(shown)
    return changed
