"""Check options of plans against each other: phases, steps and strategies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tf_executor.contract.strategies import Strategy
from tf_scheduler.errors import Problem
from tf_scheduler.model.plan import DEPLOY, RESERVED_PLAN_NAMES, UPDATE, PlanStrategy
from tf_scheduler.model.spec import ADDRESS_DEPENDENTS
from tf_scheduler.options.schema.jobs import JOBS
from tf_scheduler.options.schema.values import Document, split_names

_PARALLEL = PlanStrategy.PARALLEL.value
_OTHERS = tuple(name for name in RESERVED_PLAN_NAMES if name not in (DEPLOY, UPDATE))


def _phases(options: Document) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Return each phase with its path in the document."""
    for index, phase in enumerate(options["plans"]["phases"]):
        yield f"plans.phases.{index}", phase


def custom_plans_have_unreserved_names(options: Document) -> Iterator[Problem]:
    for path, phase in _phases(options):
        if phase["plan"] in _OTHERS:
            yield Problem(f"{path}.plan", f"must not be {phase['plan']}: this name is reserved")


def phase_names_are_unique(options: Document) -> Iterator[Problem]:
    seen: set[tuple[str, str]] = set()
    for path, phase in _phases(options):
        if (phase["plan"], phase["phase"]) in seen:
            yield Problem(f"{path}.phase", f"duplicate phase {phase['phase']} of plan {phase['plan']}")
        seen.add((phase["plan"], phase["phase"]))


def task_indexes_exist(options: Document) -> Iterator[Problem]:
    for path, phase in _phases(options):
        if phase["job"] not in JOBS:
            continue
        first = options["worker"]["count"] if phase["job"] == "gpu_worker" else 0
        indexes = {str(index) for index in range(first, first + options[phase["job"]]["count"])}
        wrong = [index for index in split_names(phase["tasks"]) if index not in indexes]
        if wrong:
            last = first + len(indexes) - 1
            allowed = f"{first} to {last}" if indexes else f"empty ({phase['job']}.count is 0)"
            yield Problem(f"{path}.tasks", f"must be {allowed}, not {', '.join(wrong)}")


def tasks_occur_once_per_plan(options: Document) -> Iterator[Problem]:
    seen: dict[tuple[str, str, str], str] = {}
    for path, phase in _phases(options):
        indexes = split_names(phase["tasks"]) or ("",)
        for index in indexes:
            keys = {(phase["plan"], phase["job"], index), (phase["plan"], phase["job"], "")}
            clash = [seen[key] for key in keys if key in seen]
            whole = [where for (plan, job, _), where in seen.items() if (plan, job) == (phase["plan"], phase["job"])]
            clash += whole if not index else []
            if clash:
                task = f"{phase['job']} {index}".strip()
                yield Problem(f"{path}.tasks", f"duplicate task {task}: already in {clash[0]}")
                break
        seen.update({(phase["plan"], phase["job"], index): path for index in indexes})


def phase_dependencies_exist(options: Document) -> Iterator[Problem]:
    for path, phase in _phases(options):
        names = [other["phase"] for _, other in _phases(options) if other["plan"] == phase["plan"]]
        wrong = [name for name in split_names(phase["after"]) if name not in names]
        if wrong:
            phases = f"plan {phase['plan']} has the phases {', '.join(names)}"
            yield Problem(f"{path}.after", f"unknown phase {', '.join(wrong)}: {phases}")


def phase_dependencies_are_acyclic(options: Document) -> Iterator[Problem]:
    after = {(phase["plan"], phase["phase"]): split_names(phase["after"]) for _, phase in _phases(options)}
    for path, phase in _phases(options):
        if _reaches(after, phase["plan"], phase["phase"]):
            yield Problem(f"{path}.after", f"circular dependency of {phase['phase']}")


def _reaches(after: Mapping[tuple[str, str], tuple[str, ...]], plan: str, name: str) -> bool:
    reached: set[str] = set()
    todo = list(after.get((plan, name), ()))
    while todo:
        other = todo.pop()
        if other not in reached:
            reached.add(other)
            todo += after.get((plan, other), ())
    return name in reached


def every_job_is_in_a_plan(options: Document) -> Iterator[Problem]:
    planned = {phase["job"] for _, phase in _phases(options) if phase["plan"] == DEPLOY}
    custom = {phase["job"] for _, phase in _phases(options) if phase["plan"] not in RESERVED_PLAN_NAMES}
    for section in JOBS:
        if planned and options[section]["count"] and section not in planned | custom:
            message = f"{section} has no phase; add a phase for it to the plan `deploy` or to a custom plan"
            yield Problem("plans.phases", message)


def update_covers_deployed_jobs(options: Document) -> Iterator[Problem]:
    """Without a phase, an update would never launch changed tasks."""
    phases = [phase for _, phase in _phases(options)]
    updated = {phase["job"] for phase in phases if phase["plan"] == UPDATE}
    deployed = {phase["job"] for phase in phases if phase["plan"] == DEPLOY} or set(JOBS)
    for section in JOBS:
        if updated and options[section]["count"] and section in deployed - updated:
            message = f"plan `update` needs a phase for {section}, because plan `deploy` launches tasks of {section}"
            yield Problem("plans.phases", message)


def address_dependents_start_in_parallel(options: Document) -> Iterator[Problem]:
    """Serial launches would deadlock: each task waits until all tasks have an address."""
    strategy = Strategy(options["service"]["strategy"])
    dependents = [name for name, kind in JOBS.items() if kind in ADDRESS_DEPENDENTS[strategy]]
    if strategy.traits.chief_coordinates or not dependents:
        return
    why = f"with service.strategy {strategy.value}, tasks of {', '.join(dependents)} need each other's addresses"
    for name in (DEPLOY, UPDATE):
        if options["plans"][name] != _PARALLEL:
            yield Problem(f"plans.{name}", f"must be parallel, not {options['plans'][name]}: {why}")
    for path, phase in _phases(options):
        if phase["job"] in dependents and phase["strategy"] not in ("", _PARALLEL):
            yield Problem(f"{path}.strategy", f"must be parallel, not {phase['strategy']}: {why}")
        if phase["job"] in dependents and phase["plan"] in (DEPLOY, UPDATE) and phase["after"]:
            yield Problem(f"{path}.after", f"must be empty with service.strategy {strategy.value}")


def chief_phase_is_last(options: Document) -> Iterator[Problem]:
    """A chief that coordinates needs all addresses, so its phase must be last."""
    if not Strategy(options["service"]["strategy"]).traits.chief_coordinates:
        return
    for name in (DEPLOY, UPDATE):
        phases = [(path, phase) for path, phase in _phases(options) if phase["plan"] == name]
        serial = options["plans"][name] != _PARALLEL and not any(phase["after"] for _, phase in phases)
        chiefs = [index for index, (_, phase) in enumerate(phases) if phase["job"] == "chief"]
        if serial and chiefs and chiefs[0] < len(phases) - 1:
            yield Problem(phases[chiefs[0]][0], f"must be the last phase of {name}: the chief needs all addresses")
        for path, phase in phases:
            names = [other["phase"] for _, other in phases if other["job"] == "chief"]
            if set(names) & set(split_names(phase["after"])):
                yield Problem(f"{path}.after", "must not name the chief's phase, because the chief is launched last")
