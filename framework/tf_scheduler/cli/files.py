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

import click

from tf_scheduler.bundle import build_bundle
from tf_scheduler.errors import Problem
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.options.loader import resolve, to_spec
from tf_scheduler.options.notices import without_effect
from tf_scheduler.options.sections.jobs import JOBS
from tf_scheduler.options.side_jobs import image_of

from .document import FAILOVER, can_check_gpus, local_path, localised, read

Options = Mapping[str, Any]


def load_options(path: Path) -> ServiceSpec:
    """The spec of an options file for a run on this machine. Raise OptionsError with every problem.

    What the file leaves open: the user is the one who runs us, the program's interpreter is ours. Paths in it are
    relative to the file. Options without effect are told on standard error.
    """
    folder = path.parent
    rules = (
        lambda options: _missing_files(options, folder),
        _missing_programs,
        _impossible_user,
        _other_containers,
    )
    options = resolve(read(path), _local_defaults(), rules)
    for notice in without_effect(options):
        click.echo(f"notice: {notice}", err=True)
    return to_spec(localised(options, folder.resolve()))


def _local_defaults() -> Mapping[str, Mapping[str, Any]]:
    return {
        "service": {"user": getpass.getuser(), "python": sys.executable, "failover_timeout": FAILOVER},
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


def _impossible_user(options: Options) -> Iterator[Problem]:
    user = options["service"]["user"]
    try:
        other = pwd.getpwnam(user).pw_uid != os.geteuid()
    except KeyError:
        yield Problem("service.user", f"there is no user {user} on this machine")
        return
    if other and os.geteuid() != 0:
        yield Problem("service.user", f"only root can run tasks as another user, here {user}; leave it out")


def _other_containers(options: Options) -> Iterator[Problem]:
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
