"""Check options of jobs and their plans against each other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from tf_executor.contract.payload import setter_of
from tf_executor.contract.settings import COMMAND, HTTP
from tf_executor.contract.strategies import Strategy, named
from tf_scheduler.errors import Problem
from tf_scheduler.model.plan import DEPLOY, RESERVED_PLAN_NAMES, UPDATE, PlanStrategy
from tf_scheduler.model.spec import ADDRESS_DEPENDENTS, SuccessPolicy
from tf_scheduler.options.schema.jobs import JOBS, names_program
from tf_scheduler.options.schema.values import Document, split_names

#: Placeholder of a further port (tf_executor.launch.environment).
_FURTHER_PORT = re.compile(r"(?<!\$)\{port_([1-9])\}")


def some_job_has_tasks(options: Document) -> Iterator[Problem]:
    if not any(options[section]["count"] for section in JOBS):
        yield Problem("", f"nothing to run; set the count of at least one section above 0: {', '.join(JOBS)}")


def every_job_has_command(options: Document) -> Iterator[Problem]:
    """Require a command for each job; without any program, the check job runs instead."""
    service = options["service"]
    if service["command"].strip() or service["job_name"] or not names_program(options):
        return
    for section in JOBS:
        if options[section]["count"] and not options[section]["command"].strip():
            yield Problem(f"{section}.command", "required, because service.command and service.job_name are empty")


def strategy_has_required_jobs(options: Document) -> Iterator[Problem]:
    strategy = _strategy(options)
    default = () if options["chief"]["count"] else ("worker",)
    for section in strategy.traits.needed_sections or default:
        alike = ("worker", "gpu_worker") if section == "worker" else (section,)
        if not any(options[name]["count"] for name in alike):
            yield Problem(f"{section}.count", f"must be at least 1 with strategy {strategy.value}, not 0")


def parameter_servers_fit_strategy(options: Document) -> Iterator[Problem]:
    """Reject parameter servers if the tasks of the strategy share no variables."""
    strategy, count = _strategy(options), options["parameter_server"]["count"]
    if count and not strategy.traits.has_parameter_servers:
        yield Problem("parameter_server.count", f"must be 0 with strategy {strategy.value}, not {count}")


def success_policy_fits_strategy(options: Document) -> Iterator[Problem]:
    """Reject policies that wait for workers which the chief leads: these never finish."""
    strategy, success = _strategy(options), options["finish"]["success"]
    allowed = (SuccessPolicy.DEFAULT.value, SuccessPolicy.CHIEF.value)
    if strategy.traits.chief_coordinates and success not in allowed:
        message = f"must be {' or '.join(allowed)} with strategy {strategy.value}, not {success}"
        yield Problem("finish.success", message)


def variables_are_not_set_twice(options: Document) -> Iterator[Problem]:
    """Reject variables that the scheduler sets, such as TF_CONFIG or RANK."""
    sections = ((f"{section}.environment", options[section]["environment"]) for section in ("service", *JOBS))
    secrets = ((f"secrets.{index}.env", (record["env"],)) for index, record in enumerate(options["secrets"]))
    for path, name in ((path, name) for path, names in (*sections, *secrets) for name in names):
        if setter := setter_of(name, _strategy(options)):
            yield Problem(path, f"must not set {name}, which {setter} sets for each task")


def _strategy(options: Document) -> Strategy:
    return Strategy(options["service"]["strategy"])


def liveness_has_target(options: Document) -> Iterator[Problem]:
    health = options["health"]
    if health["liveness"] in (COMMAND, HTTP) and not health["target"].strip():
        yield Problem("health.target", f"required with health.liveness {health['liveness']}")
    wrong = [name for name in split_names(health["jobs"]) if name not in JOBS]
    if wrong:
        yield Problem("health.jobs", f"unknown section {', '.join(wrong)}; expected some of {', '.join(JOBS)}")


def ports_are_useful(options: Document) -> Iterator[Problem]:
    """Require a port for each placeholder `{port_1}`, which would stay in the command."""
    service = options["service"]
    for section in (name for name in JOBS if options[name]["count"]):
        job = options[section]
        commands = (job["command"] or service["command"], job["pre_command"], job["post_command"])
        last = max((int(number) for text in commands for number in _FURTHER_PORT.findall(text)), default=0)
        if last >= job["ports"]:
            message = f"must be at least {last + 1}, because its command has {{port_{last}}}, not {job['ports']}"
            yield Problem(f"{section}.ports", message)
        elif job["ports"] > 1 and service["virtual_network_enabled"]:
            message = "must be 1 with service.virtual_network_enabled: tasks with addresses of their own have all ports"
            yield Problem(f"{section}.ports", message)


def min_count_needs_mirrored_strategy(options: Document) -> Iterator[Problem]:
    minimum, worker = options["worker"]["min_count"], options["worker"]
    if minimum > worker["count"]:
        yield Problem("worker.min_count", f"must be at most worker.count ({worker['count']}), not {minimum}")
    if minimum and (not _strategy(options).traits.can_start_smaller or options["gpu_worker"]["count"]):
        names = named(lambda traits: traits.can_start_smaller, "or")
        yield Problem("worker.min_count", f"requires strategy {names} and gpu_worker.count 0")


def elastic_workers_fit(options: Document) -> Iterator[Problem]:
    """Check the number of workers, and whether it can change while the job runs."""
    worker, elastic = options["worker"], options["worker"]["elastic"]
    low, high = elastic["min"], elastic["max"]
    if high and low > high:
        yield Problem("worker.elastic.min", f"must be at most worker.elastic.max ({high}), not {low}")
    elif not high and low > worker["count"]:
        yield Problem("worker.elastic.min", f"must be at most worker.count ({worker['count']}), not {low}")
    elif high and not low <= worker["count"] <= high:
        yield Problem(
            "worker.count", f"must be from worker.elastic.min to max ({low} to {high}), not {worker['count']}"
        )
    if elastic["grow"] == "when_idle" and not (elastic["max"] and not options["gpu_worker"]["count"]):
        yield Problem("worker.elastic.grow", "when_idle requires worker.elastic.max and gpu_worker.count 0")
    strategy = _strategy(options)
    if elastic["mode"] != "live":
        if elastic["grow"] == "when_idle" and not strategy.traits.is_collective:
            names = named(lambda traits: traits.is_collective, "or")
            why = "other jobs would restart without a checkpoint"
            yield Problem(
                "worker.elastic.grow", f"when_idle requires worker.elastic.mode live, or strategy {names}: {why}"
            )
        return
    if not strategy.traits.can_resize_live:
        names = named(lambda traits: traits.can_resize_live, "or")
        yield Problem("worker.elastic.mode", f"live requires service.strategy {names}, not {strategy.value}")
    if options["gpu_worker"]["count"]:
        message = "live requires gpu_worker.count 0, because its indexes follow those of worker"
        yield Problem("worker.elastic.mode", message)
    if not elastic["max"]:
        yield Problem("worker.elastic.max", "required with worker.elastic.mode live: tasks size their threads by it")


def max_backoff_is_at_least_backoff(options: Document) -> Iterator[Problem]:
    restart = options["restart"]
    if restart["max_backoff"] < restart["backoff"]:
        yield Problem("restart.max_backoff", f"must be at least restart.backoff ({restart['backoff']:g} seconds)")


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
    """Require an update phase for each deployed job; otherwise no update reaches it."""
    phases = [phase for _, phase in _phases(options)]
    updated = {phase["job"] for phase in phases if phase["plan"] == UPDATE}
    deployed = {phase["job"] for phase in phases if phase["plan"] == DEPLOY} or set(JOBS)
    for section in JOBS:
        if updated and options[section]["count"] and section in deployed - updated:
            message = f"plan `update` needs a phase for {section}, because plan `deploy` launches tasks of {section}"
            yield Problem("plans.phases", message)


def address_dependents_start_in_parallel(options: Document) -> Iterator[Problem]:
    """Require parallel launches if each task waits until all tasks have an address."""
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
    """Require the last phase for a coordinating chief, which needs all addresses."""
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
