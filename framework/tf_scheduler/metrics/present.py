"""What is so now: read from a snapshot of the state whenever somebody asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from tf_scheduler.model.ids import name_of
from tf_scheduler.model.plan import Status
from tf_scheduler.model.progress import Progress
from tf_scheduler.model.resources import UNIT
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord, TaskState

from .watch import PlanWatch

_SCALARS = ("cpus", "mem", "disk", "gpus")
_MEGABYTES = ("mem", "disk")
#: Metric -> what it says, and where it comes from.
_TRAINING: dict[str, tuple[str, Callable[[Progress], float | None]]] = {
    "training_step": ("Step of the training that a task has reached.", lambda item: item.step),
    "training_total_steps": ("Steps at the end of the training, as its program says.", lambda item: item.total),
    "training_loss": ("Loss that a task told last; may be NaN or infinite.", lambda item: item.loss),
    "training_examples": ("Examples since the start of the training.", lambda item: item.examples),
    "training_steps_per_second": ("Speed of a task.", lambda item: item.steps_per_second),
    "training_examples_per_second": ("Speed of a task.", lambda item: item.examples_per_second),
    "training_seconds_left": ("Until the end of the training, at the present speed.", lambda item: item.seconds_left),
}


class Present(Collector):
    """A collector over the state. `version`: of the program."""

    def __init__(self, state: Callable[[], SchedulerState], watch: PlanWatch, version: str) -> None:
        self._state, self._watch, self._version = state, watch, version

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Nothing: a registry that checks for names that are there twice would have it collect."""
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        state = self._state()
        yield _one("subscribed", "Whether Mesos talks to us.", state.connected)
        yield _one("suppressed", "Whether Mesos was asked for no offers.", state.suppressed)
        yield _one("offers_held", "Offers that are held now.", len(state.offers))
        yield _one("tasks_wanted", "Tasks that the options ask for.", state.spec.task_count)
        yield _one("tasks_pending", "Tasks that have no place yet.", len(state.pending))
        yield _one("reservations", "Places that are reserved.", len(state.reservations))
        yield _one("agents_suspected", "Agents with failures held against them.", len(state.suspects))
        generation = max((record.generation for record in state.tasks.values()), default=0)
        yield _one("cluster_generation", "Number of the ClusterSpec.", generation)
        yield _info(state, self._version)
        yield _tasks(state)
        yield _allocated(state)
        yield from _training(state)
        yield from self._plans()

    def _plans(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        now = self._watch.look()
        found = GaugeMetricFamily(
            "tensorflow_plan_status", "1 for the status that a plan is in.", labels=("plan", "status")
        )
        for name, current in now.items():
            for status in Status:
                found.add_metric((name, status.value), status is current)
        yield found
        words = "Seconds that a plan has been in a status."
        times = CounterMetricFamily("tensorflow_plan_status_seconds", words, labels=("plan", "status"))
        for (name, status), seconds in self._watch.seconds().items():
            times.add_metric((name, status.value), seconds)
        yield times


def _one(name: str, words: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"tensorflow_{name}", words, value=value)


def _info(state: SchedulerState, version: str) -> GaugeMetricFamily:
    words = "Always 1; which service this is, and the version of its scheduler."
    found = GaugeMetricFamily("tensorflow_service_info", words, labels=("service", "strategy", "version"))
    found.add_metric((state.spec.name, state.spec.strategy.value, version), 1)
    return found


def _tasks(state: SchedulerState) -> GaugeMetricFamily:
    found = GaugeMetricFamily("tensorflow_tasks", "Launched tasks, by what Mesos said of them last.", labels=("state",))
    for each in TaskState:
        found.add_metric((each.value,), state.tally.get(each, 0))
    return found


def _allocated(state: SchedulerState) -> GaugeMetricFamily:
    """Of every job, and every resource, so that nothing is missing in a sum."""
    totals = {(job.kind.value, name): 0 for job in state.spec.jobs for name in _SCALARS}
    for record in state.live():
        for resource in record.resources:
            if isinstance(resource.value, int) and resource.name in _SCALARS:
                key = (record.job.value, resource.name)
                totals[key] = totals.get(key, 0) + resource.value
    words = "What tasks and their executors have: CPUs, GPUs, bytes of memory and disk."
    found = GaugeMetricFamily("tensorflow_allocated", words, labels=("job_name", "resource"))
    for key, amount in sorted(totals.items()):
        found.add_metric(key, amount / UNIT * (2**20 if key[1] in _MEGABYTES else 1))
    return found


def _training(state: SchedulerState) -> Iterator[GaugeMetricFamily]:
    told = list(_told(state))
    for name, (words, value) in _TRAINING.items():
        found = GaugeMetricFamily(f"tensorflow_{name}", words, labels=("task", "job_name"))
        for record, progress in told:
            if (number := value(progress)) is not None:
                found.add_metric((record.name, record.job.value), number)
        yield found


def _told(state: SchedulerState) -> Iterator[tuple[TaskRecord, Progress]]:
    for launch, progress in state.progress.items():
        record = state.tasks.get(name_of(launch))
        if record is not None and record.id == launch:
            yield record, progress
