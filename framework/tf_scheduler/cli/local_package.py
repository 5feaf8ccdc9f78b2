"""The package for this machine: the same sources, with what a laptop knows as defaults of the options."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

from mesos_local import LocalCluster
from tf_scheduler.package import universe
from tf_scheduler.package.artefacts import build_artefacts
from tf_scheduler.package.sources import HOME, Sources, read


def build_local(cluster: LocalCluster, folder: Path, url: str) -> None:
    """Build repository and artefacts below `folder`, which is served at `url`."""
    sources = read(HOME)
    build_artefacts(folder / universe.ARTEFACTS / str(sources.package["version"]), HOME)
    local = with_defaults(sources, _defaults(cluster))
    universe.build(local, folder, f"{url}/{universe.ARTEFACTS}")


def _defaults(cluster: LocalCluster) -> Mapping[str, Any]:
    """Option -> default: our user and our Python, no image, the local Mesos, state in the cluster's folder."""
    return {
        "service.user": getpass.getuser(),
        "service.python": sys.executable,
        "executor.python": sys.executable,
        "scheduler.containerized": False,
        "scheduler.python": sys.executable,
        "scheduler.state": (cluster.directory / "dcos" / "state.db").as_uri(),
        "mesos.master": cluster.master.address,
    }


def with_defaults(sources: Sources, defaults: Mapping[str, Any]) -> Sources:
    """The sources with other defaults in config.json. Raise KeyError for an option that there is not."""
    config = deepcopy(sources.config)
    for path, value in defaults.items():
        option = config
        for name in path.split("."):
            option = option["properties"][name]
        option["default"] = value
    return replace(sources, config=config)
