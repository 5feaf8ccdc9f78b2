"""Check options of jobs, restarts and health checks against each other."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tf_executor.contract.settings import COMMAND, HTTP
from tf_executor.contract.strategies import Strategy, named
from tf_scheduler.errors import Problem
from tf_scheduler.model.spec import SuccessPolicy
from tf_scheduler.options.schema.jobs import JOBS, names_program
from tf_scheduler.options.schema.values import Document, split_names

#: Placeholder of a further port (tf_executor.launch.environment).
_FURTHER_PORT = re.compile(r"(?<!\$)\{port_([1-9])\}")


def some_job_has_tasks(options: Document) -> Iterator[Problem]:
    if not any(options[section]["count"] for section in JOBS):
        yield Problem("", f"nothing to run; set the count of at least one section above 0: {', '.join(JOBS)}")


def every_job_has_command(options: Document) -> Iterator[Problem]:
    """Accept options without any program: the package has a default, its check job."""
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
    """Workers that are led by a chief run until they are stopped."""
    strategy, success = _strategy(options), options["finish"]["success"]
    allowed = (SuccessPolicy.DEFAULT.value, SuccessPolicy.CHIEF.value)
    if strategy.traits.chief_coordinates and success not in allowed:
        message = f"must be {' or '.join(allowed)} with strategy {strategy.value}, not {success}"
        yield Problem("finish.success", message)


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
    """A placeholder without a port would stay in the command."""
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
    if elastic["mode"] != "live":
        return
    strategy = _strategy(options)
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
