"""The package for this machine: the same sources, with what a laptop knows as defaults of the options."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from mesos_local import LocalCluster
from tf_scheduler.package import universe
from tf_scheduler.package.artefacts import build_artefacts, build_cached
from tf_scheduler.package.render import render_app
from tf_scheduler.package.sources import HOME, Sources, read
from tf_scheduler.pyz import cache_folder

from .document import FAILOVER, can_check_gpus
from .folders import RunFolder

#: Options of the API's access: on loopback, to one's own scheduler, nobody has to prove who they are.
_ACCESS = ("read_token", "write_token", "certificate_file", "key_file", "client_ca_file")


def build_local(cluster: LocalCluster, folder: Path, url: str) -> None:
    """Build repository and artefacts below `folder`, which is served at `url`."""
    sources = read(HOME)
    build_artefacts(folder / universe.ARTEFACTS / str(sources.package["version"]), HOME)
    state = (cluster.directory / "dcos" / "state.db").as_uri()
    defaults = {**_defaults(sources), "scheduler.state": state, "mesos.master": cluster.master.address}
    universe.build(with_defaults(sources, defaults), folder, f"{url}/{universe.ARTEFACTS}")


def _tell(notice: str) -> None:
    click.echo(notice, err=True)


def render_run(
    document: Mapping[str, Any],
    cluster: LocalCluster,
    folder: RunFolder,
    state: str = "",
    tell: Callable[[str], None] = _tell,
) -> dict[str, Any]:
    """The Marathon app of one run: rendered as DC/OS does it, from options that passed every check.

    `state`: where its scheduler keeps its own; empty: in the run's folder. `tell` gets the notices.

    Master, state and the scheduler's interpreter are the run's own, whatever the options say of a cluster. The app runs
    as who we are, for its folder is ours; tasks run as `service.user`. What it fetches is in the user's cache. Its
    health nobody checks: its checks end nothing, and who runs it looks at it anyway.
    """
    found = read(HOME)
    own = {**_defaults(found), "service.failover_timeout": FAILOVER, "service.checkpoint_dir": str(folder.checkpoints)}
    sources = with_defaults(found, own)
    home = build_cached(cache_folder("package"), str(sources.package["version"]), HOME)
    (entry,) = universe.packages(universe.addressed(sources, home.as_uri()))
    forced = _forced(document, _own(cluster, state or folder.store.as_uri()), tell)
    app = render_app(entry, forced, home.as_uri(), checked=True)
    environment = {**app["env"], "RECORDING_FILE": str(folder.recording)}
    return {**app, "user": getpass.getuser(), "env": environment, "healthChecks": []}


def sources_of_secrets(document: Mapping[str, Any]) -> dict[str, str]:
    """Our variables that the options name as sources of secrets, `env:NAME`: the scheduler of a run gets them, too."""
    names = _variables(document) | _variables(read(HOME).config)
    return {name: os.environ[name] for name in sorted(names) if name in os.environ}


def _variables(value: Any) -> set[str]:
    if isinstance(value, str):
        return {value.removeprefix("env:")} if value.startswith("env:") else set()
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return {name for item in items for name in _variables(item)}


def _defaults(sources: Sources) -> dict[str, Any]:
    """Option -> default: our user and our Python, no image."""
    sections = () if can_check_gpus() else sources.config["properties"].items()
    return {
        "service.user": getpass.getuser(),
        "service.python": sys.executable,
        "executor.python": sys.executable,
        "scheduler.containerized": False,
        "scheduler.python": sys.executable,
        **{f"{name}.gpu_check": False for name, section in sections if "gpu_check" in section.get("properties", {})},
    }


def _own(cluster: LocalCluster, state: str) -> dict[str, Any]:
    return {
        "mesos.master": cluster.master.address,
        "scheduler.state": state,
        "scheduler.containerized": False,
        "scheduler.python": sys.executable,
        "service.service_account_secret": "",
        "mesos.secret": "",
        "tls.enabled": False,
        "secret_delivery.url": "",
        **dict.fromkeys((f"api.{name}" for name in _ACCESS), ""),
    }


def _forced(document: Mapping[str, Any], own: Mapping[str, Any], tell: Callable[[str], None]) -> dict[str, Any]:
    """The document with `own` options; what it says else of them is told."""
    found: dict[str, Any] = deepcopy(dict(document))
    for path, value in own.items():
        section, name = path.split(".")
        given = found.setdefault(section, {})
        if given.get(name, value) != value:
            tell(f"notice: {path} is not used: a local run has its own")
        given[name] = value
    return found


def with_defaults(sources: Sources, defaults: Mapping[str, Any]) -> Sources:
    """The sources with other defaults in config.json. Raise KeyError for an option that there is not."""
    config = deepcopy(sources.config)
    for path, value in defaults.items():
        option = config
        for name in path.split("."):
            option = option["properties"][name]
        option["default"] = value
    return replace(sources, config=config)
