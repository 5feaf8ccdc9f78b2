"""Summarize and compare runs; describe the environment that results depend on."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tf_executor.contract.reports import format_step, json_number
from tf_executor.contract.text import UNKNOWN, downsample, format_duration, format_loss, format_number

from .model import POINT_FIELDS, Run, digest_key

#: Best values in a list of runs.
_BEST = 3


@dataclass(frozen=True, slots=True)
class ValueDifference:
    """A value that differs between two runs; None if a run lacks the value."""

    name: str
    old: Any
    new: Any


def compare_options(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[ValueDifference]:
    """Return differing options by dotted path."""
    return compare_values(dict(_flat(old, "")), dict(_flat(new, "")))


def compare_values(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[ValueDifference]:
    """Return differing values, also those that only one run has."""
    names = [*old, *(name for name in new if name not in old)]
    return [
        ValueDifference(name, old.get(name), new.get(name))
        for name in names
        if (name in old, old.get(name)) != (name in new, new.get(name))
    ]


def compare_results(old: Run, new: Run) -> list[ValueDifference]:
    """Return all results of both runs, also equal ones."""
    before, after = run_results(old), run_results(new)
    return [ValueDifference(name, before.get(name), after.get(name)) for name in {**before, **after}]


def run_results(run: Run) -> dict[str, Any]:
    """Return the main results of a run, by names that are easy to type in programs."""
    last, best = run.last, run.best
    speed, unit = run.speed
    metrics = {"loss": last.loss, **last.metrics}
    return {
        "state": run.state,
        **({"warning": run.warning} if run.warning else {}),
        "seconds": run.seconds,
        "seconds_to_first_step": None if run.first_step is None else round(run.first_step, 2),
        "last_step": last.step,
        **({} if last.epoch is None else {"last_epoch": last.epoch}),
        **{f"last_{name}": json_number(value) for name, value in metrics.items()},
        **({} if last.nan_since is None else {"loss_nan_since": last.nan_since}),
        **{f"best_{name}": best.get(name) for name in metrics},
        f"median_{unit}_per_second": speed,
        "restarts": run.restarts,
        "generations": len({launch.generation for launch in run.launches}),
    }


def run_summary(run: Run) -> dict[str, Any]:
    """Return the values of a run for a list of runs in JSON."""
    names = ("id", "service", "submitted", "reason", "note")
    return {**{name: getattr(run, name) for name in names}, **run_results(run)}


def run_row(run: Run, *, is_current: bool = False) -> dict[str, Any]:
    """Return a run's row in the list of a page; `is_current`: the page is of this run."""
    return {**run_summary(run), "texts": run_texts(run), "current": is_current}


def run_texts(run: Run) -> dict[str, str]:
    """Return results as texts for a list of runs, with up to `_BEST` best values."""
    names = ("loss", *run.last.metrics)
    best = [f"{name} {format_number(run.best[name])}" for name in names if name in run.best]
    return {
        "time": format_duration(run.seconds),
        "step": format_step(run.last),
        "loss": format_loss(run.last.loss, run.last.nan_since),
        "best": ", ".join(best[:_BEST]) or UNKNOWN,
    }


def run_details(run: Run, points: int) -> dict[str, Any]:
    """Return summary, options by dotted path, and `points` of the leader's curve."""
    curve = downsample(run.curves.get(run.leader or "", ()), points)
    return {
        **run_summary(run),
        "options": dict(_flat(run.options, "")),
        "points": [point.to_json(("time", *POINT_FIELDS)) for point in curve],
    }


def _flat(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(node, Mapping) and node:
        for name, value in node.items():
            yield from _flat(value, f"{path}.{name}" if path else str(name))
    elif path:
        yield path, node


def hidden_options(run: Run, mask: str) -> list[str]:
    """Return the paths of masked options."""
    return [path for path, value in _flat(run.options, "") if isinstance(value, str) and mask in value]


#: Packages that affect the result of a training.
_PACKAGES = ("tensorflow", "tensorflow-cpu", "keras", "tf_keras", "numpy", "protobuf", "horovod", "torch")
_ASK = (
    "import importlib.metadata as m, json, platform, sys\n"
    "versions = {'python': platform.python_version()}\n"
    "for name in sys.argv[1:]:\n"
    "    try:\n"
    "        versions[name] = m.version(name)\n"
    "    except m.PackageNotFoundError:\n"
    "        pass\n"
    "print(json.dumps(versions))\n"
)
_TIMEOUT = 20.0  # seconds


def describe_environment(
    version: str, mesos: str, pythons: Iterable[str], files: Iterable[Path], may_start: Callable[[str], bool] = bool
) -> dict[str, str]:
    """Describe this machine, its software and files: name -> version, size or digest.

    Args:
        version: Version of dcos-tensorflow.
        mesos: Version of Mesos.
        pythons: Interpreters of the tasks.
        files: Local files that the tasks fetch.
        may_start: Whether an interpreter may be started.
    """
    environment = {
        "dcos-tensorflow": version,
        "mesos": mesos,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processors": str(os.cpu_count() or 0),
    }
    for place, python in enumerate(dict.fromkeys(pythons), 1):
        prefix = "" if place == 1 else f"interpreter_{place}_"
        versions = package_versions(python) if may_start(python) else {}
        environment |= {f"{prefix}{name}": number for name, number in versions.items()}
    for path in files:
        environment[digest_key(str(path))] = file_digest(path)
    return environment


def package_versions(python: str) -> dict[str, str]:
    """Return the versions of an interpreter and its packages; empty if it cannot run."""
    try:
        done = subprocess.run(
            [python, "-c", _ASK, *_PACKAGES], capture_output=True, timeout=_TIMEOUT, check=True, cwd="/"
        )
        return {str(name): str(version) for name, version in json.loads(done.stdout).items()}
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}


def file_digest(path: Path) -> str:
    """Return the first half of a file's SHA-256; empty if the file is unreadable."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:32]
    except OSError:
        return ""
