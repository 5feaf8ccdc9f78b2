"""Rules over plans. Each is named as the sentence that it enforces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tf_scheduler.errors import Problem
from tf_scheduler.model.knowers import KNOWERS
from tf_scheduler.model.plan import PlanStrategy
from tf_scheduler.model.plan_names import DEPLOY, RESERVED, UPDATE
from tf_scheduler.model.spec import Strategy

from .sections.jobs import JOBS
from .words import words

Document = Mapping[str, Any]
_PARALLEL = PlanStrategy.PARALLEL.value
_OTHERS = tuple(name for name in RESERVED if name not in (DEPLOY, UPDATE))


def _phases(options: Document) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Every phase, with its path in the document."""
    for place, phase in enumerate(options["plans"]["phases"]):
        yield f"plans.phases.{place}", phase


def plans_of_the_user_have_names_of_their_own(options: Document) -> Iterator[Problem]:
    for path, phase in _phases(options):
        if phase["plan"] in _OTHERS:
            yield Problem(f"{path}.plan", f"must not be {phase['plan']}: that plan follows from what happens")


def phases_of_a_plan_have_different_names(options: Document) -> Iterator[Problem]:
    seen: set[tuple[str, str]] = set()
    for path, phase in _phases(options):
        if (phase["plan"], phase["phase"]) in seen:
            yield Problem(f"{path}.phase", f"is another {phase['phase']} of plan {phase['plan']}")
        seen.add((phase["plan"], phase["phase"]))


def indexes_of_tasks_are_those_of_their_job(options: Document) -> Iterator[Problem]:
    for path, phase in _phases(options):
        if phase["job"] not in JOBS:
            continue
        first = options["worker"]["count"] if phase["job"] == "gpu_worker" else 0
        known = {str(index) for index in range(first, first + options[phase["job"]]["count"])}
        wrong = [index for index in words(phase["tasks"]) if index not in known]
        if wrong:
            last = first + len(known) - 1
            allowed = f"{first} to {last}" if known else f"nothing: {phase['job']}.count is 0"
            yield Problem(f"{path}.tasks", f"must be {allowed}, not {', '.join(wrong)}")


def no_plan_has_two_steps_for_a_task(options: Document) -> Iterator[Problem]:
    seen: dict[tuple[str, str, str], str] = {}
    for path, phase in _phases(options):
        named = words(phase["tasks"]) or ("",)
        for index in named:
            keys = {(phase["plan"], phase["job"], index), (phase["plan"], phase["job"], "")}
            clash = [seen[key] for key in keys if key in seen]
            whole = [where for (plan, job, _), where in seen.items() if (plan, job) == (phase["plan"], phase["job"])]
            clash += whole if not index else []
            if clash:
                task = f"{phase['job']} {index}".strip()
                yield Problem(f"{path}.tasks", f"has {task} again, as {clash[0]}")
                break
        seen.update({(phase["plan"], phase["job"], index): path for index in named})


def phases_wait_for_phases_of_their_own_plan(options: Document) -> Iterator[Problem]:
    for path, phase in _phases(options):
        names = [other["phase"] for _, other in _phases(options) if other["plan"] == phase["plan"]]
        wrong = [name for name in words(phase["after"]) if name not in names]
        if wrong:
            there = f"plan {phase['plan']} has {', '.join(names)}"
            yield Problem(f"{path}.after", f"names {', '.join(wrong)}, but {there}")


def phases_do_not_wait_for_themselves(options: Document) -> Iterator[Problem]:
    after = {(phase["plan"], phase["phase"]): words(phase["after"]) for _, phase in _phases(options)}
    for path, phase in _phases(options):
        if _reaches(after, phase["plan"], phase["phase"]):
            yield Problem(f"{path}.after", f"makes {phase['phase']} wait for itself")


def _reaches(after: Mapping[tuple[str, str], tuple[str, ...]], plan: str, name: str) -> bool:
    found: set[str] = set()
    todo = list(after.get((plan, name), ()))
    while todo:
        other = todo.pop()
        if other not in found:
            found.add(other)
            todo += after.get((plan, other), ())
    return name in found


def every_job_is_launched_by_some_plan(options: Document) -> Iterator[Problem]:
    planned = {phase["job"] for _, phase in _phases(options) if phase["plan"] == DEPLOY}
    custom = {phase["job"] for _, phase in _phases(options) if phase["plan"] not in RESERVED}
    for section in JOBS:
        if planned and options[section]["count"] and section not in planned | custom:
            yield Problem("plans.phases", f"{section} is in no plan: give deploy, or a plan of yours, a phase for it")


def an_update_has_a_phase_for_every_job_of_the_deployment(options: Document) -> Iterator[Problem]:
    """Else what changes there would never be launched."""
    phases = [phase for _, phase in _phases(options)]
    updated = {phase["job"] for phase in phases if phase["plan"] == UPDATE}
    deployed = {phase["job"] for phase in phases if phase["plan"] == DEPLOY} or set(JOBS)
    for section in JOBS:
        if updated and options[section]["count"] and section in deployed - updated:
            yield Problem("plans.phases", f"update has no phase for {section}, which deploy launches")


def tasks_that_must_know_every_address_are_launched_together(options: Document) -> Iterator[Problem]:
    """They would wait for each other for ever: nobody has an address before all have one."""
    strategy = Strategy(options["service"]["strategy"])
    knowers = [name for name, kind in JOBS.items() if kind in KNOWERS[strategy]]
    if strategy is Strategy.PARAMETER_SERVER:
        return
    why = f"must be parallel with service.strategy {strategy.value}: {', '.join(knowers)} must know each other"
    for name in (DEPLOY, UPDATE):
        if options["plans"][name] != _PARALLEL:
            yield Problem(f"plans.{name}", f"{why}; not {options['plans'][name]}")
    for path, phase in _phases(options):
        if phase["job"] in knowers and phase["strategy"] not in ("", _PARALLEL):
            yield Problem(f"{path}.strategy", f"{why}; not {phase['strategy']}")
        if phase["job"] in knowers and phase["plan"] in (DEPLOY, UPDATE) and phase["after"]:
            yield Problem(f"{path}.after", f"must be empty with service.strategy {strategy.value}")


def the_chief_waits_for_no_phase_that_waits_for_it(options: Document) -> Iterator[Problem]:
    """With parameter servers the chief must know all addresses: it cannot come first."""
    if options["service"]["strategy"] != Strategy.PARAMETER_SERVER.value:
        return
    for name in (DEPLOY, UPDATE):
        phases = [(path, phase) for path, phase in _phases(options) if phase["plan"] == name]
        serial = options["plans"][name] != _PARALLEL and not any(phase["after"] for _, phase in phases)
        chiefs = [place for place, (_, phase) in enumerate(phases) if phase["job"] == "chief"]
        if serial and chiefs and chiefs[0] < len(phases) - 1:
            yield Problem(phases[chiefs[0]][0], f"must be the last phase of {name}: the chief must know all addresses")
        for path, phase in phases:
            names = [other["phase"] for _, other in phases if other["job"] == "chief"]
            if set(names) & set(words(phase["after"])):
                yield Problem(f"{path}.after", "must not name the chief's phase: the chief must know all addresses")
