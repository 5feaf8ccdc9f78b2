"""A foreign file -> options that are valid, and all that a person has to know of the way."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tf_scheduler.errors import OptionsError, Problem
from tf_scheduler.model.spec import Strategy
from tf_scheduler.options.loader import resolve
from tf_scheduler.options.notices import without_effect

from . import beta, operator_job, tfjob, tony
from .mapping import Deed, Say, TooBigError, collect
from .reading import Kind, read

_CONVERTERS: Mapping[Kind, Callable[[Mapping[str, Any], str], Iterator[Deed]]] = {
    Kind.TFJOB: tfjob.convert,
    Kind.PYTORCH: tfjob.convert,
    Kind.OPERATOR: operator_job.convert,
    Kind.TONY: tony.convert,
    Kind.BETA: beta.convert,
}
_JOBS = ("chief", "parameter_server", "worker", "gpu_worker", "evaluator")


#: Sections whose default count is not 0.
_COUNTED = ("parameter_server", "worker")


class UnfitError(OptionsError):
    """What came out is no valid options file; what was said on the way is often the reason."""

    def __init__(self, problems: Sequence[Problem], warnings: Sequence[Say]) -> None:
        super().__init__(problems)
        self.warnings = tuple(warnings)


@dataclass(frozen=True, slots=True)
class Converted:
    kind: Kind
    #: An options file.
    options: dict[str, Any]
    #: What was left out, changed or guessed, by its place in the foreign file.
    warnings: tuple[Say, ...]


def convert(data: bytes, source: str, program: str = "", strategy: str = "") -> Converted:
    """Raise OptionsError when the file cannot be read, UnfitError when what comes out is no valid options file.

    `program`: command line where the file does not say what its image runs. `strategy`: how the program distributes its
    training, which no such file says; empty: guessed from the jobs.
    """
    job = read(data, source)
    try:
        options, said = collect(_CONVERTERS[job.kind](job.content, program))
    except TooBigError as error:
        raise OptionsError([Problem("", f"{source}: {error}")]) from error
    _finish(options)
    if job.kind is not Kind.BETA:
        for section in _COUNTED:
            options.setdefault(section, {}).setdefault("count", 0)
        said += _strategy(options, strategy)
    _check(options, source, (*job.said, *said))
    effects = [Say(notice.path, notice.message) for notice in without_effect(resolve(options))]
    return Converted(job.kind, options, (*job.said, *said, *effects))


def _finish(options: dict[str, Any]) -> None:
    """Constraints are text in options files."""
    for section in _JOBS:
        rows = options.get(section, {}).get("placement_constraint")
        if isinstance(rows, list):
            options[section]["placement_constraint"] = json.dumps(rows)


def _strategy(options: dict[str, Any], given: str) -> list[Say]:
    service = options.setdefault("service", {})
    if given:
        service["strategy"] = given
    if service.get("strategy"):
        return []
    counts = {section: options.get(section, {}).get("count", 0) for section in _JOBS}
    mirrored = not counts["parameter_server"] and counts["worker"] + counts["gpu_worker"] + counts["chief"] > 1
    guess = Strategy.MULTI_WORKER_MIRRORED if mirrored else Strategy.BETWEEN_GRAPH
    if guess is Strategy.MULTI_WORKER_MIRRORED and not counts["worker"] + counts["gpu_worker"]:
        guess = Strategy.BETWEEN_GRAPH
    service["strategy"] = guess.value
    why = "there are no parameter servers" if mirrored else "that does for every program that reads TF_CONFIG or flags"
    others = ", ".join(one.value for one in Strategy if one is not guess)
    return [
        Say(
            "service.strategy",
            f"{guess.value} was guessed, as {why}; if it is not so, convert with --strategy ({others})",
        )
    ]


def _check(options: Mapping[str, Any], source: str, said: Sequence[Say]) -> None:
    try:
        resolve(options)
    except OptionsError as error:
        hidden = [problem for problem in error.problems if problem.path.endswith(".command")]
        more = f"{source} does not say what its image runs; say it: convert --command 'python train.py'"
        raise UnfitError([*error.problems, *([Problem("", more)] if hidden else [])], said) from error
