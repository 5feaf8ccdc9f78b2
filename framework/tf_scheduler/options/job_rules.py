"""Rules over the jobs and what happens to them. Each is named as the sentence that it enforces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tf_scheduler.errors import Problem
from tf_scheduler.model.placement import GangMode
from tf_scheduler.model.policy import SuccessPolicy
from tf_scheduler.model.program import LivenessKind
from tf_scheduler.model.spec import Strategy

from .sections.jobs import JOBS
from .words import words

Document = Mapping[str, Any]

_OF_THEIR_OWN = (Strategy.INDEPENDENT.value, Strategy.PYTORCH_DDP.value, Strategy.HOROVOD.value)


def there_is_something_to_run(options: Document) -> Iterator[Problem]:
    if not any(options[section]["count"] for section in JOBS):
        yield Problem("", f"nothing to run: give at least one of {', '.join(JOBS)} a count above 0")


def every_job_has_a_program(options: Document) -> Iterator[Problem]:
    service = options["service"]
    if service["command"].strip() or service["job_name"]:
        return
    for section in JOBS:
        if options[section]["count"] and not options[section]["command"].strip():
            yield Problem(f"{section}.command", "is needed, since service.command and service.job_name are empty")


def parameter_server_strategy_has_a_chief_workers_and_parameter_servers(options: Document) -> Iterator[Problem]:
    if options["service"]["strategy"] == Strategy.PARAMETER_SERVER.value:
        yield from _needs_at_least_one(options, "parameter_server", ("chief", "worker", "parameter_server"))


def mirrored_strategy_has_workers_and_no_parameter_servers(options: Document) -> Iterator[Problem]:
    if options["service"]["strategy"] != Strategy.MULTI_WORKER_MIRRORED.value:
        return
    yield from _needs_at_least_one(options, "multi_worker_mirrored", ("worker",))
    count = options["parameter_server"]["count"]
    if count:
        yield Problem("parameter_server.count", f"must be 0 with strategy multi_worker_mirrored, not {count}")


def between_graph_has_a_worker(options: Document) -> Iterator[Problem]:
    if options["service"]["strategy"] == Strategy.BETWEEN_GRAPH.value and not options["chief"]["count"]:
        yield from _needs_at_least_one(options, "between_graph", ("worker",))


def workers_of_their_own_have_no_parameter_servers(options: Document) -> Iterator[Problem]:
    """PyTorch and Horovod have none, and who works for himself shares no variables."""
    strategy = options["service"]["strategy"]
    if strategy not in _OF_THEIR_OWN:
        return
    if not options["chief"]["count"]:
        yield from _needs_at_least_one(options, strategy, ("worker",))
    count = options["parameter_server"]["count"]
    if count:
        yield Problem("parameter_server.count", f"must be 0 with strategy {strategy}, not {count}")


def workers_that_never_end_do_not_decide_success(options: Document) -> Iterator[Problem]:
    """With parameter servers they serve the chief until they are ended."""
    success = options["finish"]["success"]
    allowed = (SuccessPolicy.DEFAULT.value, SuccessPolicy.CHIEF.value)
    if options["service"]["strategy"] == Strategy.PARAMETER_SERVER.value and success not in allowed:
        yield Problem("finish.success", f"must be {' or '.join(allowed)} with strategy parameter_server, not {success}")


def _needs_at_least_one(options: Document, strategy: str, sections: tuple[str, ...]) -> Iterator[Problem]:
    for section in sections:
        alike = ("worker", "gpu_worker") if section == "worker" else (section,)
        if not any(options[name]["count"] for name in alike):
            yield Problem(f"{section}.count", f"must be at least 1 with strategy {strategy}, not 0")


def reservations_have_a_role_of_their_own(options: Document) -> Iterator[Problem]:
    if options["gang"]["mode"] == GangMode.RESERVE.value and options["service"]["role"] == "*":
        yield Problem("gang.mode", 'reserve needs a role: Mesos reserves nothing for service.role "*"')


def liveness_has_something_to_look_at(options: Document) -> Iterator[Problem]:
    health = options["health"]
    if health["liveness"] in (LivenessKind.COMMAND.value, LivenessKind.HTTP.value) and not health["target"].strip():
        yield Problem("health.target", f"is needed with health.liveness {health['liveness']}")
    wrong = [name for name in words(health["jobs"]) if name not in JOBS]
    if wrong:
        yield Problem("health.jobs", f"must be some of {', '.join(JOBS)}, not {', '.join(wrong)}")


def fewer_workers_are_for_collective_training(options: Document) -> Iterator[Problem]:
    least, worker = options["worker"]["min_count"], options["worker"]
    if least > worker["count"]:
        yield Problem("worker.min_count", f"must be at most worker.count ({worker['count']}), not {least}")
    collective = options["service"]["strategy"] == Strategy.MULTI_WORKER_MIRRORED.value
    if least and (not collective or options["gpu_worker"]["count"]):
        yield Problem("worker.min_count", "is for strategy multi_worker_mirrored without gpu_worker only")


def the_longest_wait_is_no_shorter_than_the_first(options: Document) -> Iterator[Problem]:
    restart = options["restart"]
    if restart["max_backoff"] < restart["backoff"]:
        yield Problem("restart.max_backoff", f"must be at least restart.backoff ({restart['backoff']:g} seconds)")
